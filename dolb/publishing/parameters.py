"""Parameters of a notebook: their names, types and defaults stand in its one cell tagged `parameters`.

`dolb run` and `dolb book` check what they are given before anything runs. Plain papermill takes any name and any value,
so that every notebook also asks for the check itself (``check_injected``).
"""

import ast
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from IPython import get_ipython

from dolb.publishing.gate import notebook_at

_BY_PAPERMILL = "# Parameters"  # how the cell begins that papermill puts after that of the parameters
# What a page says of itself where its runs are not the published ones that its text is about.
LIVE = {
    "demo": "A demo: charts and tables are of small runs made just now, which decide nothing. The text, and what "
    "captions find, are of the published runs, whose verdicts the book has.",
    "paper": "Run live: charts, tables and verdicts are of these runs. The text, and what captions find, are of the "
    "published ones.",
}
NARROWED = (
    "Narrowed: charts, tables and verdicts are of the part of the published runs that was asked for. The text, and "
    "what captions find, are of all."
)
_NOT_OF_RUNS = ("scale", "device", "data_dir", "store", "time_limit")
_KINDS: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float), "dict": dict}


class ParameterError(ValueError):
    """A parameter that the notebook does not have, or a value of another type than it takes."""

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows of it: the message alone."""
        return [f"{type(self).__name__}: {self}"]


class Parameter(NamedTuple):
    """The default of a parameter, and the type that it is written with, else that of the default."""

    default: Any
    kind: str


def read_parameters(notebook: Path) -> dict[str, Any]:
    """Return the names and default values of the notebook's one cell tagged `parameters`, in order."""
    return {name: parameter.default for name, parameter in _declared(notebook).items()}


def check_parameters(notebook: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Raise ParameterError unless the notebook has every name and takes its value; return the defaults."""
    _check(str(notebook), _declared(notebook), given)
    return read_parameters(notebook)


def check_injected() -> None:
    """Raise ParameterError if papermill has put something into this notebook that it has no use for.

    The first cell after the parameters calls it, and it looks at the cells that ran before that.
    """
    *before, given, _ = ["", "", *_history()]
    declared = next((cell for cell in reversed(before) if cell.startswith("scale = ")), None)
    if declared is not None and given.startswith(_BY_PAPERMILL):
        names = {name: parameter.default for name, parameter in _assigned("the notebook", given).items()}
        _check("the notebook", _assigned("the notebook", declared), names)


def injected() -> dict[str, Any]:
    """Return what papermill has put into this notebook."""
    given = next((cell for cell in reversed(_history()) if cell.startswith(_BY_PAPERMILL)), "")
    return {name: parameter.default for name, parameter in _assigned("the notebook", given).items()}


def narrowed() -> dict[str, Any]:
    """Return what papermill has put in that says which runs, but for the scale."""
    return {name: value for name, value in injected().items() if name not in _NOT_OF_RUNS and value is not None}


def live_scale() -> str:
    """Return the scale of this notebook if its runs are made live, else nothing."""
    shell = get_ipython()
    scale = str(shell.user_ns.get("scale")) if shell else ""
    return scale if scale in LIVE else ""


def _history() -> list[str]:
    shell = get_ipython()
    return shell.user_ns["In"] if shell else []


def _declared(notebook: Path) -> dict[str, Parameter]:
    cells = [cell for cell in notebook_at(notebook).cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        raise ParameterError(f"{notebook}: {len(cells)} cells are tagged 'parameters'; exactly one is accepted")
    return _assigned(str(notebook), cells[0].source)


def _assigned(where: str, source: str) -> dict[str, Parameter]:
    """Return what a cell assigns, by name."""
    found = {}
    for statement in ast.parse(source).body:
        try:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=ast.expr() as value):
                    found[name] = Parameter(ast.literal_eval(value), ast.unparse(kind))
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    default = ast.literal_eval(value)
                    found[name] = Parameter(default, _kind(default))
                case _:
                    raise ValueError("it assigns no name")
        except ValueError as error:
            line = f"`{ast.unparse(statement)}` in the parameters cell"
            raise ParameterError(f"{where}: {line}; only `name = literal` is accepted") from error
    return found


def _check(where: str, declared: Mapping[str, Parameter], given: Mapping[str, Any]) -> None:
    accepted = ", ".join(f"{name} ({parameter.kind})" for name, parameter in declared.items()) or "none"
    for name, value in given.items():
        if name not in declared:
            close = difflib.get_close_matches(name, declared, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ParameterError(f"{where} has no parameter {name!r}{hint}; accepted are: {accepted}")
        default, kind = declared[name]
        if not (_fits(value, kind) or (value is None and default is None)):
            several = ""
            if kind.startswith("list["):
                some = '["..."]' if "str" in kind else "[...]"
                several = f"; lists are -y '{{{name}: {some}}}' with papermill, -p '{name}={some}' with dolb run"
            raise ParameterError(
                f"{where}: parameter {name!r} = {value!r} is {_kind(value)}, but {kind} is accepted "
                f"(default {default!r}){several}; parameters are: {accepted}"
            )


def _fits(value: Any, kind: str) -> bool:
    if kind.startswith("list["):  # the command line can only write lists, so a list stands for a tuple too
        items = kind.removeprefix("list[").removesuffix("]").split(" | ")
        return isinstance(value, list | tuple) and all(any(_fits(item, one) for one in items) for item in value)
    if kind == "bool" or isinstance(value, bool):
        return kind in ("bool", "Any") and isinstance(value, bool)
    return isinstance(value, _KINDS.get(kind, object))


def _kind(value: Any) -> str:
    """Return the type of a value as it would be written beside the name."""
    if isinstance(value, list | tuple):
        return f"list[{' | '.join(sorted({_kind(item) for item in value})) or 'Any'}]"
    return "Any" if value is None else type(value).__name__
