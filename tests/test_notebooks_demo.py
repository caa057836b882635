"""Notebooks run from end to end at demo scale, on digits; they share what they make in a store."""

import json
from pathlib import Path

import pytest
from executed import held_to_one_core, outputs_of
from typer.testing import CliRunner

from dolb import data, publishing
from dolb.cli import app
from dolb.filtering import decisions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a machine that others use may take several times as long

FILTERING = ("02-features", "03-noise", "04-filtered-small-batch", "05-filtered-large-batch", "06-loss-landscape")
RANKS = ("11-ddp-vs-horovod", "12-step-timeline")  # which tests of ranks run
NOTEBOOKS = {path.stem for path in (Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb")}
OTHERS = sorted(NOTEBOOKS.difference(FILTERING, RANKS))
# For a notebook, by the time of its processes on as many cores; the first of those on filtering makes maps for all.
DEMO_SECONDS, CORES = 120, 2


@pytest.mark.parametrize("name", [*FILTERING, *OTHERS])
def test_a_notebook_runs_at_demo_scale_within_two_minutes_and_says_so(name, demo, demo_seconds):
    outputs = outputs_of(demo(name))
    assert "--scale demo" in outputs or "scale demo" in outputs
    assert demo_seconds[name] / CORES < DEMO_SECONDS


def test_the_command_line_finds_what_the_notebook_on_landscapes_made(demo, demo_store, demo_epochs):
    demo("06-loss-landscape")
    kept = set(demo_store.glob("*.nc"))
    narrowed = ["--store", str(demo_store), "--device", "cpu", "--epochs", str(demo_epochs), "--seeds", "0"]
    outcome = CliRunner().invoke(app, ["sweep", "loss-landscape", *narrowed])
    assert outcome.exit_code == 0, outcome.output
    assert set(demo_store.glob("*.nc")) == kept


def test_a_notebook_trains_and_draws_a_set_of_ones_own(demo_store, demo_epochs, tmp_path, repo_root):
    digits = data.load("digits")
    saved = tmp_path / "decisions.json"
    saved.write_text(json.dumps(decisions.header(digits) | {"dropped": list(range(200))}))
    narrow = {"sets": ["full", "network"], "batch_sizes": [256], "seeds": [0, 1], "epochs": demo_epochs}
    parameters = {"scale": "demo", "device": "cpu", "store": str(demo_store), "keep": {"mine": str(saved)}, **narrow}
    source = repo_root / "notebooks" / "05-filtered-large-batch.ipynb"
    with held_to_one_core():
        target = publishing.run_notebook(source, tmp_path / "out.ipynb", parameters, cwd=tmp_path, progress=False)
    assert '"set": "mine"' in outputs_of(target)
