"""Parameters that a notebook does not have, or of another type, are refused in one line, however it is run."""

import subprocess
import sys

import nbformat
from planting import write_notebook

THIS = ("-k", "python3", "-l", "python")  # a planted notebook does not name its kernel


def test_plain_papermill_fails_in_the_first_cell_after_a_wrong_parameter(tmp_path):
    check = "from dolb.publishing import parameters\n\nparameters.check_injected()"
    source = write_notebook(tmp_path / "source.ipynb", check, 'open("ran", "w").close()')
    command = [sys.executable, "-m", "papermill", source, tmp_path / "out.ipynb", *THIS, "-p", "archs", "one"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode != 0, done.stderr
    assert not (tmp_path / "ran").exists()
    cells = nbformat.read(tmp_path / "out.ipynb", as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    (shown,) = [output.traceback for output in outputs if output.output_type == "error"]
    assert len(shown) == 1  # no traceback, one line
    assert "parameter 'archs' = 'one' is str, but list[str] is accepted (default None); lists are -y" in shown[0]
