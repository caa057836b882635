"""The gate refuses parameters before a notebook runs, and refuses an executed notebook that must not be published."""

import ast
import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat

INJECTED = "injected-parameters"


class ParameterError(ValueError):
    """A parameter that the notebook does not have, or a value of another type than its default."""


class GateError(RuntimeError):
    """An executed notebook that must not be published; the message names the notebook and the cell."""


def read_parameters(notebook: Path) -> dict[str, Any]:
    """Return the names and default values of the notebook's one cell tagged `parameters`, in order."""
    cells = [cell for cell in _load(notebook).cells if "parameters" in _tags(cell)]
    if len(cells) != 1:
        raise ParameterError(f"{notebook}: {len(cells)} cells are tagged 'parameters'; exactly one is accepted")
    defaults: dict[str, Any] = {}
    for statement in ast.parse(cells[0].source).body:
        try:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    defaults[name] = ast.literal_eval(value)
                case _:
                    raise ValueError("it assigns no name")
        except ValueError as error:
            line = f"`{ast.unparse(statement)}` in the parameters cell"
            raise ParameterError(f"{notebook}: {line}; only `name = literal` is accepted") from error
    return defaults


def check_parameters(notebook: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Raise ParameterError unless the notebook has every name with a default of that type; return the defaults."""
    defaults = read_parameters(notebook)
    for name, value in parameters.items():
        if name not in defaults:
            close = difflib.get_close_matches(name, defaults, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ParameterError(
                f"{notebook} has no parameter {name!r}{hint}; accepted are: {', '.join(defaults) or 'none'}"
            )
        if not _same_type(value, defaults[name]):
            accepted = ", ".join(f"{key} ({_type_name(default)})" for key, default in defaults.items())
            raise ParameterError(
                f"{notebook}: parameter {name!r} = {value!r} is {_type_name(value)}, but {_type_name(defaults[name])} "
                f"is accepted (default {defaults[name]!r}); parameters are: {accepted}"
            )
    return defaults


def check_notebook(path: Path, expected_source: Path, inputs: str | None = None) -> None:
    """Raise GateError unless every code cell is that of `expected_source` and ran once, in order, without an error.

    Only outputs, execution counts and the kernel's own replies are believed: papermill's metadata can say "completed"
    after a crash. Parameters that papermill injected may be there too. With `inputs`, it must have been made from what
    has that digest: the code, the results, the installed packages.
    """
    notebook = _load(path)
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
    written = [cell for cell in _load(expected_source).cells if INJECTED not in _tags(cell)]
    for index, (old, new) in enumerate(zip(ran, written, strict=False), start=1):
        if (old.cell_type, old.source) != (new.cell_type, new.source):
            raise GateError(f"{path}: {_name(index, old)} is stale: {expected_source} now has {_name(index, new)}")
    if len(ran) != len(written):
        raise GateError(f"{path} is stale: it has {len(ran)} cells and {expected_source} has {len(written)}")


def first_unfinished(path: Path) -> str:
    """Name the first cell that the notebook at `path` did not finish, for an error message."""
    if not path.exists():
        return "the kernel's start"
    for where, cell in _numbered_code_cells(_load(path)):
        if cell.execution_count is None or "shell.execute_reply" not in cell.metadata.get("execution", {}):
            return where
    return "the end of the notebook"


def _load(path: Path) -> nbformat.NotebookNode:
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


def _same_type(value: Any, default: Any) -> bool:
    if default is None:
        return True
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    if isinstance(default, float):
        return isinstance(value, int | float)
    if isinstance(default, list | tuple):
        # The command line can only write lists, so a list stands for a tuple too.
        return isinstance(value, list | tuple) and (
            not default or all(any(_same_type(item, known) for known in default) for item in value)
        )
    return isinstance(value, type(default))


def _type_name(value: Any) -> str:
    if isinstance(value, list | tuple):
        inside = sorted({_type_name(item) for item in value})
        return f"list of {' or '.join(inside)}" if inside else "list"
    return "None (anything)" if value is None else type(value).__name__
