"""The pipeline as a picture, drawn from the functions that are its stages, so that the two cannot drift apart."""

from __future__ import annotations

import html
import inspect
import pkgutil
import re
import textwrap
from dataclasses import dataclass
from typing import Any

from IPython.display import HTML

from dolb.filtering import STAGES

_WIDTH, _GAP, _PADDING, _LINE, _ASCENT = 560, 36, 12, 20, 13  # pixels
_CHARACTERS = 74  # to a line


@dataclass(frozen=True)
class Stage:
    """One stage: what it is called, the function or class that does it, and what goes in and out."""

    name: str
    function: str
    takes: str
    gives: str

    def resolve(self) -> Any:
        """Return the function or class itself."""
        return pkgutil.resolve_name(self.function)

    @property
    def says(self) -> str:
        """The first sentence of its docstring, without code marks."""
        first = (inspect.getdoc(self.resolve()) or "").split("\n\n")[0].replace("\n", " ")
        return re.split("[:;.] ", first)[0].rstrip(".").replace("``", "") + "."


def stages() -> list[Stage]:
    """Return the stages, from the images to the smaller training set."""
    return [Stage(*row) for row in STAGES]


def pipeline_svg() -> str:
    """Return the pipeline as an SVG in the colours of the page around it: a box for each stage, data on the arrows."""
    boxes = stages()
    parts, top = [_arrow(0, boxes[0].takes)], _GAP
    for position, box in enumerate(boxes):
        lines = textwrap.wrap(box.says, _CHARACTERS)
        height = 2 * _PADDING + _LINE * (1 + len(lines))
        frame = f'x="1" y="{top}" width="{_WIDTH - 2}" height="{height}" rx="6"'
        parts.append(f'<rect {frame} fill="none" stroke="currentColor"/>')
        first = top + _PADDING + _ASCENT
        parts.append(_text(_PADDING, first, f"{position + 1}. {box.name}", 'font-weight="bold"'))
        code = 'text-anchor="end" font-family="monospace" font-size="12"'
        parts.append(_text(_WIDTH - _PADDING, first, box.function.removeprefix("dolb."), code))
        parts += [_text(_PADDING, first + _LINE * (k + 1), line) for k, line in enumerate(lines)]
        parts.append(_arrow(top + height, box.gives))
        top += height + _GAP
    words = f"Pipeline: {boxes[0].takes}, " + ", ".join(f"then {box.name}, which gives {box.gives}" for box in boxes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" role="img" '
        f'style="max-width:100%;height:auto" font-family="system-ui, sans-serif" font-size="14" fill="currentColor">'
        f"<title>{html.escape(words)}</title>{''.join(parts)}</svg>"
    )


def show_pipeline() -> HTML:
    """Return the picture for a notebook's cell, marked as a figure of the book."""
    return HTML(f'<figure class="dolb-figure" style="margin:0">{pipeline_svg()}</figure>')


def _arrow(top: float, label: str) -> str:
    """Draw an arrow down over one gap, with what travels along it beside."""
    x, end = _WIDTH / 4, top + _GAP - 3
    path = f"M{x:g} {top + 3:g}V{end:g}m-4 -6l4 6l4 -6"
    return f'<path d="{path}" fill="none" stroke="currentColor"/>' + _text(x + 12, top + _GAP / 2 + 4, label)


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{html.escape(text, quote=False)}</text>'
