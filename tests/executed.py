"""What an executed notebook shows, and where one is executed."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from dolb import recipes


def outputs_of(notebook: Path) -> str:
    """Return what the cells of a notebook put out, as one text."""
    cells = nbformat.read(notebook, 4).cells
    return " ".join(str(out) for cell in cells if cell.cell_type == "code" for out in cell.outputs)


def published_notebooks() -> list[Path]:
    """Return the notebooks but those of experiments that nobody has run at paper scale yet."""
    root = Path(__file__).resolve().parents[1]
    lacking = {slug for slug in recipes.RECIPES if not (root / "results" / f"{slug}.nc").exists()}
    return [path for path in sorted((root / "notebooks").glob("*.ipynb")) if path.stem[3:] not in lacking]


@contextlib.contextmanager
def without_links() -> Iterator[None]:
    """Be a machine whose links cannot be changed, as one without root: its programs for that are not found."""
    with pytest.MonkeyPatch.context() as patch:
        usual = os.environ["PATH"].split(os.pathsep)
        patch.setenv("PATH", os.pathsep.join(folder for folder in usual if not folder.endswith("sbin")))
        yield


@contextlib.contextmanager
def held_to_one_core() -> Iterator[None]:
    """Be a machine with one core: a second process would import torch for longer than the short runs of demos take."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usual)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)
