"""Run notebooks with papermill, pass them through the gate, and build the Jupyter Book of what passed.

``panels`` is what notebooks put on a page, and ``pages`` makes the pages that follow from claims and results.
"""

from dolb.publishing.book import BookError, build_book, build_pages, listed, stage
from dolb.publishing.gate import GateError, check_notebook
from dolb.publishing.notebooks import run_notebook
from dolb.publishing.parameters import ParameterError

__all__ = [
    "BookError", "GateError", "ParameterError", "build_book", "build_pages", "check_notebook", "listed",
    "run_notebook", "stage",
]  # fmt: skip
