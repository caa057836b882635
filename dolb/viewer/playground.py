"""A learning-rate schedule drawn in the page while its controls are moved, with the run and its command to copy."""

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from string import Template
from typing import Any

from dolb.viewer.page import Viewer, asset, script_json

BATCH_SIZES = tuple(2**k for k in range(5, 16))
LRS = tuple(
    float(f"{digits}e{power}") for power in range(-4, 1) for digits in (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)
)


def rate_playground(runs: Sequence[Any], command: str, examples: int = 50_000) -> Viewer:
    """Return controls of a learning-rate schedule, its line, and the run that they stand for as text to copy.

    The controls start at the first of the ``runs``, which ``command`` runs and which are alike in all but batch size
    and rate; those of all are on the sliders. The command is a ``dolb sweep`` of an experiment under one scaling, base
    batch size and decay: options narrow it to one run. ``examples`` are the images of the training set.
    """
    start = runs[0]
    data = {
        "start": start.as_dict(),
        "defaults": {field.name: field.default for field in fields(start)},
        "batch_size": sorted({*BATCH_SIZES, *(run.batch_size for run in runs)}),
        "lr": sorted({*LRS, *(run.lr for run in runs)}),
        "examples": examples,
        "command": command,
    }
    text = script_json(data)
    page = Template(asset("playground.html")).substitute(
        id=f"dolb-playground-{hashlib.sha256(text.encode()).hexdigest()[:10]}",
        css=asset("playground.css"), script=asset("playground.js"), data=text,
    )  # fmt: skip
    return Viewer(page, f"{start}\n{command}")
