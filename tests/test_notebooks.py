"""Notebooks compose: they have no outputs, one cell of parameters, and leave computing and drawing to the package."""

import ast
from pathlib import Path

import nbformat
import pytest

from dolb.publishing.parameters import read_parameters

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
SCALES = ("published", "demo", "paper")
# design: "at most about a dozen code cells"
MOST_CODE_CELLS = 12
COMPUTING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.AsyncFor, ast.While)

pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_notebook_is_valid(path):
    nbformat.validate(nbformat.read(path, as_version=nbformat.NO_CONVERT))


def test_notebook_is_committed_without_outputs(path):
    for cell in code_cells(path):
        assert cell.outputs == [], cell.source
        assert cell.execution_count is None, cell.source


def test_first_parameter_is_the_scale_and_its_default_is_published(path):
    name, default = next(iter(read_parameters(path).items()))
    assert (name, default) == ("scale", SCALES[0])


def test_parameters_come_before_any_other_code(path):
    assert "parameters" in code_cells(path)[0].metadata.get("tags", [])


def test_what_papermill_injects_is_checked_by_the_first_cell_after_the_parameters(path):
    assert "\nparameters.check_injected()\n" in code_cells(path)[1].source


def test_a_parameter_without_a_default_says_its_type(path):
    without = [name for name, value in read_parameters(path).items() if value is None]
    typed = [node.target.id for node in ast.parse(code_cells(path)[0].source).body if isinstance(node, ast.AnnAssign)]
    assert typed == without


def test_notebook_defines_and_loops_over_nothing(path):
    for cell in code_cells(path):
        found = [type(node).__name__ for node in ast.walk(ast.parse(cell.source)) if isinstance(node, COMPUTING)]
        assert not found, f"{found} in: {cell.source}"


def test_notebook_is_short(path):
    assert len(code_cells(path)) <= MOST_CODE_CELLS


def test_notebook_starts_with_its_title(path):
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")


def test_set_up_does_not_show_and_no_cell_shows_its_code(path):
    for cell in code_cells(path):
        shows = set(cell.metadata.get("tags", [])) & {"remove-cell", "remove-input"}
        assert shows == {"remove-cell"} if "parameters" in cell.metadata["tags"] else shows
