"""The gate: an executed notebook that must not be published is refused."""

from collections.abc import Iterator
from pathlib import Path

import nbformat

INJECTED = "injected-parameters"


class GateError(RuntimeError):
    """An executed notebook that must not be published; the message names the notebook and the cell."""


def check_notebook(path: Path, expected_source: Path, inputs: str | None = None) -> None:
    """Raise GateError unless every code cell is that of `expected_source` and ran once, in order, without an error.

    Only outputs, execution counts and the kernel's own replies are believed: papermill's metadata can say "completed"
    after a crash. Parameters that papermill injected may be there too. With `inputs`, it must have been made from what
    has that digest: the code, the results, the installed packages.
    """
    notebook = notebook_at(path)
    _check_execution(path, notebook)
    _check_source(path, notebook, expected_source)
    if inputs is not None and notebook.metadata.get("dolb", {}).get("inputs") != inputs:
        raise GateError(f"{path} is stale: it ran with other code, results, parameters or packages than there are now")


def _check_execution(path: Path, notebook: nbformat.NotebookNode) -> None:
    for expected, (where, cell) in enumerate(_numbered_code_cells(notebook), start=1):
        for output in cell.outputs:
            if output.output_type == "error":
                raise GateError(f"{path}: {where} raised {output.ename}: {output.evalue}")
        if cell.execution_count is None:
            raise GateError(f"{path}: {where} was not executed (a dead kernel, or an edit after the run)")
        # nbclient notes when the kernel took the cell up and when it answered; a kernel that died in between has
        # given the cell a count and no error.
        timing = cell.metadata.get("execution", {})
        if timing and "shell.execute_reply" not in timing:
            raise GateError(f"{path}: {where} was started and never finished (the kernel died)")
        if cell.execution_count != expected:
            raise GateError(f"{path}: {where} has execution count {cell.execution_count}; {expected} is accepted, "
                            "as cells must run once, from top to bottom, in a fresh kernel")  # fmt: skip


def _check_source(path: Path, notebook: nbformat.NotebookNode, expected_source: Path) -> None:
    ran = [cell for cell in notebook.cells if INJECTED not in _tags(cell)]
    written = [cell for cell in notebook_at(expected_source).cells if INJECTED not in _tags(cell)]
    for index, (old, new) in enumerate(zip(ran, written, strict=False), start=1):
        if (old.cell_type, old.source) != (new.cell_type, new.source):
            raise GateError(f"{path}: {_name(index, old)} is stale: {expected_source} now has {_name(index, new)}")
    if len(ran) != len(written):
        raise GateError(f"{path} is stale: it has {len(ran)} cells and {expected_source} has {len(written)}")


def first_unfinished(path: Path) -> str:
    """Name the first cell that the notebook at `path` did not finish, for an error message."""
    if not path.exists():
        return "the kernel's start"
    for where, cell in _numbered_code_cells(notebook_at(path)):
        if cell.execution_count is None or "shell.execute_reply" not in cell.metadata.get("execution", {}):
            return where
    return "the end of the notebook"


def notebook_at(path: Path) -> nbformat.NotebookNode:
    """Return the notebook in a file; one that does not read is a GateError that names it."""
    try:
        return nbformat.read(path, as_version=4)
    except FileNotFoundError:
        raise
    except Exception as error:  # nbformat lets json's and its own errors through, none of which names the file
        raise GateError(f"{path} does not read as a notebook: {error}") from error


def _numbered_code_cells(notebook: nbformat.NotebookNode) -> Iterator[tuple[str, nbformat.NotebookNode]]:
    for index, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type == "code" and cell.source.strip():
            yield _name(index, cell), cell


def _name(index: int, cell: nbformat.NotebookNode) -> str:
    lines = cell.source.strip().splitlines() or ["empty"]
    return f"cell {index} (`{lines[0][:60]}`)"


def _tags(cell: nbformat.NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))
