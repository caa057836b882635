"""The notebooks on filtering run from end to end at demo scale, on digits, and share what they make in a store."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from dolb import data, publish
from dolb.filtering import decisions

SLUGS = ("02-features", "03-noise", "04-filtered-small-batch", "05-filtered-large-batch", "06-loss-landscape")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.mark.slow
@pytest.mark.parametrize("name", SLUGS)
def test_a_notebook_runs_at_demo_scale_and_says_so(name, store, tmp_path, repo_root):
    source = repo_root / "notebooks" / f"{name}.ipynb"
    parameters = {"scale": "demo", "device": "cpu", "store": str(store)}
    target = publish.run_notebook(source, tmp_path / "out.ipynb", parameters, cwd=tmp_path, progress=False)
    outputs = [str(out) for cell in nbformat.read(target, 4).cells if cell.cell_type == "code" for out in cell.outputs]
    assert any("Demo: small networks on digits" in text for text in outputs)
    assert any("scale demo" in text for text in outputs)
    assert any("dolb-viewer" in text for text in outputs) == (name == "03-noise")


@pytest.mark.slow
def test_a_notebook_trains_and_draws_a_set_of_ones_own(store, tmp_path, repo_root):
    digits = data.load("digits")
    saved = tmp_path / "decisions.json"
    saved.write_text(json.dumps(decisions.header(digits) | {"dropped": list(range(200))}))
    narrow = {"sets": ["full", "network"], "batch_sizes": [256], "seeds": [0, 1], "epochs": 2}
    parameters = {"scale": "demo", "device": "cpu", "store": str(store), "keep": {"mine": str(saved)}, **narrow}
    source = repo_root / "notebooks" / "05-filtered-large-batch.ipynb"
    target = publish.run_notebook(source, tmp_path / "out.ipynb", parameters, cwd=tmp_path, progress=False)
    outputs = [str(out) for cell in nbformat.read(target, 4).cells if cell.cell_type == "code" for out in cell.outputs]
    assert any("a line for full, network, mine data" in text for text in outputs)
