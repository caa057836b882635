"""What an executed notebook shows."""

from pathlib import Path

import nbformat


def outputs_of(notebook: Path) -> str:
    """Return what the cells of a notebook put out, as one text."""
    cells = nbformat.read(notebook, 4).cells
    return " ".join(str(out) for cell in cells if cell.cell_type == "code" for out in cell.outputs)
