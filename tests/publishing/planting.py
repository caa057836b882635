"""Planted notebooks and books for tests."""

import shutil
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

PARAMETERS = 'scale = "published"\nseeds = [0, 1]\nlr = 0.1\nepochs = 2\nfast = False\narchs: list[str] = None'


def write_notebook(path: Path, *sources: str, text: str = "") -> Path:
    """Write a notebook without outputs: a title and a text, a parameters cell, and the sources as code cells."""
    hidden = {"tags": ["parameters", "remove-cell"]}
    cells = [new_markdown_cell(f"# A planted notebook\n\n{text}"), new_code_cell(PARAMETERS, metadata=hidden)]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=[*cells, *map(new_code_cell, sources)]), path)
    return path


def write_book(root: Path, repo: Path, intro: str = "# A planted book\n") -> Path:
    """Write a book tree with the repository's own configuration, one prose page and no notebook yet."""
    shutil.copytree(repo / "book" / "_ext", root / "book" / "_ext", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(repo / "book" / "_static", root / "book" / "_static")
    shutil.copy(repo / "_config.yml", root)
    (root / "book" / "references.bib").write_text("")
    (root / "book" / "intro.md").write_text(intro)
    (root / "_toc.yml").write_text(
        "format: jb-book\nroot: book/intro\nchapters:\n  - file: notebooks/01-planted\n", encoding="utf-8"
    )
    return root
