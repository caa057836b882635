"""Notebooks run from end to end at demo scale, on digits: those on filtering share what they make in a store, and those
on communication train for real under DDP and Horovod, on two ranks.
"""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from waiting import cpu_seconds

from dolb import data, results
from dolb import publishing as publish
from dolb.filtering import decisions
from dolb.profiling.ranks import launch

COMMUNICATION = ("11-ddp-vs-horovod", "12-step-timeline")
DEMO_SECONDS, CORES = 180, 2  # for both of these, on as many cores, by the time of their processes
FILTERING = ("02-features", "03-noise", "04-filtered-small-batch", "05-filtered-large-batch", "06-loss-landscape")
FILTERING_SECONDS = 300  # for these five, one after another with one store


def outputs_of(notebook: Path) -> list[str]:
    return [str(out) for cell in nbformat.read(notebook, 4).cells if cell.cell_type == "code" for out in cell.outputs]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILTERING)
def test_a_notebook_runs_at_demo_scale_and_says_so(name, demo):
    outputs = outputs_of(demo(name))
    assert any("Demo: small networks on digits" in text for text in outputs)
    assert any("scale demo" in text for text in outputs)
    assert any("dolb-viewer" in text for text in outputs) == (name == "03-noise")


@pytest.mark.slow
def test_the_notebooks_on_filtering_take_minutes_together(demo, demo_seconds):
    for name in FILTERING:
        demo(name)
    assert sum(demo_seconds[name] for name in FILTERING) / CORES < FILTERING_SECONDS, demo_seconds


@pytest.mark.slow
def test_a_notebook_trains_and_draws_a_set_of_ones_own(demo_store, tmp_path, repo_root):
    digits = data.load("digits")
    saved = tmp_path / "decisions.json"
    saved.write_text(json.dumps(decisions.header(digits) | {"dropped": list(range(200))}))
    narrow = {"sets": ["full", "network"], "batch_sizes": [256], "seeds": [0, 1], "epochs": 2}
    parameters = {"scale": "demo", "device": "cpu", "store": str(demo_store), "keep": {"mine": str(saved)}, **narrow}
    source = repo_root / "notebooks" / "05-filtered-large-batch.ipynb"
    target = publish.run_notebook(source, tmp_path / "out.ipynb", parameters, cwd=tmp_path, progress=False)
    outputs = outputs_of(target)
    assert any("for full, filtered, mine data" in text for text in outputs)


@pytest.mark.slow
@pytest.mark.timeout(900)  # a machine that others use too may take several times as long
def test_the_notebooks_on_communication_train_under_both_libraries_within_minutes(require_part, tmp_path, repo_root):
    try:
        launch.require_horovod()
    except workers.RankError as error:
        require_part("horovod", False, str(error))
    begun = cpu_seconds()
    for name in COMMUNICATION:
        source, parameters = repo_root / "notebooks" / f"{name}.ipynb", {"scale": "demo", "store": str(tmp_path / name)}
        target = publish.run_notebook(source, tmp_path / f"{name}.ipynb", parameters, cwd=tmp_path, progress=False)
        outputs = outputs_of(target)
        assert any("Demo: a small network on digits, two ranks" in text for text in outputs)
        assert any("scale demo" in text for text in outputs)
        rows = [results.load(path) for path in (tmp_path / name).glob("*.nc")]
        assert {(row["library"].item(), row["source"].item()) for row in rows if row["ranks"].item() == 2} == {
            ("ddp", "measured"), ("horovod", "measured")
        }  # fmt: skip
    assert (cpu_seconds() - begun) / CORES < DEMO_SECONDS
