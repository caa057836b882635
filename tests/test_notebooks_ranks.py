"""Notebooks on communication run at demo scale: two ranks train under DDP, and under Horovod where it is built."""

import pytest
from executed import outputs_of, without_links
from waiting import cpu_seconds

from dolb import publishing, results
from dolb.profiling.ranks import launch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a machine that others use may take several times as long

COMMUNICATION = ("11-ddp-vs-horovod", "12-step-timeline")
DEMO_SECONDS, CORES = 120, 2  # for a notebook, by the time of its processes on as many cores


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Where the second of the notebooks finds what it made before, when it runs once more."""
    return tmp_path_factory.mktemp("store")


@pytest.mark.parametrize("name", COMMUNICATION)
def test_a_notebook_on_communication_trains_under_the_libraries_that_are_here(
    name, require_part, store, tmp_path, repo_root
):
    libraries = launch.available_libraries()
    if "horovod" not in libraries:
        require_part("horovod", False, "Horovod is not installed")
    begun = cpu_seconds()
    source = repo_root / "notebooks" / f"{name}.ipynb"
    parameters = {"scale": "demo", "store": str(store / name), "repeats": 1, "ranks": [2]}
    with without_links():
        target = publishing.run_notebook(source, tmp_path / f"{name}.ipynb", parameters, cwd=tmp_path, progress=False)
    assert "scale demo" in outputs_of(target)
    rows = [results.load(path) for path in (store / name).glob("*.nc")]
    measured = {(row["library"].item(), row["source"].item()) for row in rows if row["ranks"].item() == 2}
    assert measured == {(library, "measured") for library in libraries}
    assert (cpu_seconds() - begun) / CORES < DEMO_SECONDS


def test_without_horovod_a_notebook_on_communication_has_ddp_alone_and_says_so(store, tmp_path, repo_root, monkeypatch):
    hidden = tmp_path / "hidden" / "horovod"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("")  # found first, and it was built for nothing
    monkeypatch.setenv("PYTHONPATH", str(hidden.parent))
    source = repo_root / "notebooks" / "12-step-timeline.ipynb"
    parameters = {"scale": "demo", "repeats": 1, "ranks": [2], "store": str(store / source.stem)}
    target = publishing.run_notebook(source, tmp_path / "out.ipynb", parameters, cwd=tmp_path, progress=False)
    assert "Horovod is not installed here, so DDP is measured alone" in outputs_of(target)
