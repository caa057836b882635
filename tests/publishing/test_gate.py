"""The gate refuses a notebook that did not run whole and in order, from what is committed."""

import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_output
from planting import write_notebook

from dolb.publishing import GateError, check_notebook, run_notebook


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A notebook and its executed copy, which passes the gate."""
    folder = tmp_path_factory.mktemp("executed")
    source = write_notebook(
        folder / "source.ipynb", "a = 1", f"import sys\nassert sys.executable == {sys.executable!r}"
    )
    return source, run_notebook(source, folder / "executed.ipynb", {"scale": "demo", "lr": 1}, progress=False)


def tampered(executed: Path, target: Path, **changes: object) -> Path:
    notebook = nbformat.read(executed, as_version=4)
    notebook.cells[-1].update(changes)
    nbformat.write(notebook, target)
    return target


def test_executed_notebook_passes_and_holds_its_parameters(executed):
    source, target = executed
    check_notebook(target, source)
    assert "lr = 1" in target.read_text()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"execution_count": None, "outputs": []}, "was not executed"),
        ({"execution_count": 7}, "has execution count 7; 4 is accepted"),
        ({"metadata": {"execution": {"iopub.execute_input": "now"}}}, "was started and never finished"),
        ({"outputs": [new_output("error", ename="KeyError", evalue="'lr'", traceback=[])]}, "raised KeyError: 'lr'"),
    ],
    ids=["not executed", "out of order", "never finished", "error"],
)
def test_a_cell_that_did_not_run_as_it_should_is_refused_by_name(executed, tmp_path, changes, said):
    with pytest.raises(GateError, match=rf"bad\.ipynb: cell 5 \(`import sys`\) {said}"):
        check_notebook(tampered(executed[1], tmp_path / "bad.ipynb", **changes), executed[0])


def test_stale_inputs_are_refused(executed, tmp_path):
    edited = write_notebook(tmp_path / "source.ipynb", "a = 2", "a + 1")
    with pytest.raises(GateError, match=r"cell 3 \(`a = 1`\) is stale: .* now has cell 3 \(`a = 2`\)"):
        check_notebook(executed[1], edited)
    fewer = write_notebook(tmp_path / "fewer.ipynb", "a = 1")
    with pytest.raises(GateError, match=r"it has 4 cells and .* has 3"):
        check_notebook(executed[1], fewer)
    with pytest.raises(GateError, match="is stale: it ran with other code, results, parameters or packages"):
        check_notebook(executed[1], executed[0], inputs="0123")


def test_file_that_is_no_notebook_is_named(tmp_path):
    (tmp_path / "torn.ipynb").write_text('{"cells": [')
    with pytest.raises(GateError, match=r"torn\.ipynb does not read as a notebook"):
        check_notebook(tmp_path / "torn.ipynb", tmp_path / "source.ipynb")


def test_kernel_is_this_interpreter_whatever_kernelspecs_exist(executed, tmp_path, monkeypatch):
    rogue = tmp_path / "jupyter" / "kernels" / "python3"
    rogue.mkdir(parents=True)
    (rogue / "kernel.json").write_text('{"argv": ["false"], "display_name": "Python 3", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    run_notebook(executed[0], tmp_path / "executed.ipynb", {}, progress=False)


@pytest.mark.parametrize("folder", ["short", "l" * 90])
def test_kernels_talk_by_files_that_are_gone_afterwards_also_where_temporary_names_are_too_long(
    tmp_path, monkeypatch, folder
):
    place = Path(tempfile.mkdtemp()) if folder == "short" else tmp_path / folder
    place.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    said = "import pathlib, ipykernel\nassert '\"ipc\"' in pathlib.Path(ipykernel.get_connection_file()).read_text()"
    source = write_notebook(tmp_path / "source.ipynb", said)
    run_notebook(source, tmp_path / "out.ipynb", {}, progress=False)
    assert not list(place.glob("dolb-*"))
