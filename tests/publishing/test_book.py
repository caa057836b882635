"""What is published has run, whole and in order; what has not leaves the previous book as it was."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import altair as alt
import nbformat
import pytest
from nbformat.v4 import new_notebook
from planting import write_book, write_notebook

from dolb.publishing import BookError, GateError, ParameterError, build_book, build_pages, stage

CHART = """
from pathlib import Path
import altair as alt
import pandas as pd
from dolb.publishing import panels
Path("01-planted-files").mkdir(exist_ok=True)
Path("01-planted-files/beside.txt").write_text("beside the page")
data = pd.DataFrame({"x": [1, 2], "y": [3, 4]})
panels.show(alt.Chart(data).mark_point().encode(x="x", y="y"), "Two points, rising.")
""".strip()


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory, repo_root: Path, vega: Path) -> Path:
    """A planted book, built once; tests read it and do not change it."""
    root = write_book(tmp_path_factory.mktemp("book"), repo_root)
    write_notebook(root / "notebooks" / "01-planted.ipynb", CHART)
    shutil.copytree(vega, root / "_build" / "staging" / "_build" / "vega")
    build_book(root)
    return root


@pytest.fixture
def book_with_pages(tmp_path: Path, repo_root: Path) -> Path:
    """A planted book without a notebook, whose earlier pages must outlive a refused build."""
    root = write_book(tmp_path, repo_root)
    (root / "_build" / "html").mkdir(parents=True)
    (root / "_build" / "html" / "index.html").write_text("the previous pages")
    return root


def pages(root: Path) -> dict[str, str]:
    folder = root / "_build" / "html"
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.html")}


def test_pages_load_all_from_disk_and_only_those_with_charts_load_what_draws_them(book):
    made = pages(book)
    assert "book/intro.html" in made["index.html"]
    assert 'src="../_static/vega-bundle.js' in made["notebooks/01-planted.html"]
    assert "vega-bundle" not in made["book/intro.html"]
    bundle = (book / "_build/html/_static/vega-bundle.js").read_text()
    versions = json.loads(re.search(r"window\.VEGA_DEBUG=(\{.*?\});", bundle)[1])
    assert versions["vegalite_version"] == alt.VEGALITE_VERSION
    for name, page in made.items():
        assert not re.search(r'<(script|img|iframe)[^>]+src="(https?:)?//', page), name
        assert not re.search(r'<link[^>]+rel="(stylesheet|preload)"[^>]+href="(https?:)?//', page), name


def test_a_notebook_is_published_with_what_it_wrote_and_without_set_up_or_folders_of_this_machine(book):
    built, page = book / "_build" / "html", pages(book)["notebooks/01-planted.html"]
    assert "epochs = 2" not in re.sub("<[^>]+>", "", page)
    assert str(book) not in (built / "_sources/notebooks/01-planted.ipynb").read_text()
    assert (built / "notebooks/01-planted-files/beside.txt").read_text() == "beside the page"
    assert "user-redirect" not in page  # nowhere to launch it without a repository
    assert "binder" not in page


def test_plain_jupyter_book_build_works_on_notebooks_without_outputs(book, vega, tmp_path):
    root = tmp_path / "plain"
    shutil.copytree(book, root, ignore=shutil.ignore_patterns("_build"))
    shutil.copytree(vega, root / "_build" / "vega")
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(root), "-q"]
    subprocess.run(command, check=True, capture_output=True)
    assert "planted" in pages(root)["notebooks/01-planted.html"]


def test_another_scale_is_said_and_notebooks_are_launched_where_the_environment_says(book, tmp_path, vega, monkeypatch):
    monkeypatch.setenv("DOLB_BOOK_REPOSITORY", "https://github.com/someone/dolb")
    monkeypatch.setenv("DOLB_BOOK_HUB", "https://hub.example.org/")
    staging = tmp_path / "staging"
    shutil.copytree(vega, staging / "_build" / "vega")
    stage(book, staging, "demo")
    build_pages(staging, tmp_path / "html")
    page = (tmp_path / "html" / "notebooks" / "01-planted.html").read_text()
    assert "The sentences are about the published runs." in page
    notebook = "notebooks/01-planted.ipynb"
    assert f"https://mybinder.org/v2/gh/someone/dolb/main?urlpath=lab/tree/{notebook}" in page
    assert re.search(rf"https://hub\.example\.org/hub/user-redirect/git-pull\?[^\"]*lab/tree/dolb/{notebook}", page)
    assert "Parameters" not in re.sub("<[^>]+>", "", page)  # papermill's cell is set-up too


def test_a_document_that_the_references_lack_fails_the_build(book_with_pages, vega):
    shutil.copytree(vega, book_with_pages / "_build" / "staging" / "_build" / "vega")
    write_notebook(book_with_pages / "notebooks" / "01-planted.ipynb", "1 + 1", text="{cite}`gone`")
    with pytest.raises(BookError, match="gone"):
        build_book(book_with_pages)
    assert pages(book_with_pages) == {"index.html": "the previous pages"}


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("1 / 0", r"01-planted\.ipynb.*`1 / 0`.*ZeroDivisionError"),
        ("import os; os._exit(1)", r"01-planted\.ipynb: DeadKernelError at cell \d \(`import os; os._exit\(1\)`\)"),
        ("raise SystemExit(0)", r"01-planted\.ipynb.*SystemExit"),
    ],
    ids=["exception", "exit", "SystemExit"],
)
def test_refused_notebook_is_named_and_the_previous_pages_stay(book_with_pages, cell, said):
    write_notebook(book_with_pages / "notebooks" / "01-planted.ipynb", "1 + 1", cell)
    with pytest.raises(GateError, match=said):
        build_book(book_with_pages)
    assert pages(book_with_pages) == {"index.html": "the previous pages"}


def test_all_notebooks_are_checked_before_one_runs_and_of_those_listed_every_refused_one_is_named(book_with_pages):
    notebooks = book_with_pages / "notebooks"
    for name in ("01-planted", "03-planted", "04-waits"):
        write_notebook(notebooks / f"{name}.ipynb", "1 / 0")
    nbformat.write(new_notebook(), notebooks / "02-planted.ipynb")
    with open(book_with_pages / "_toc.yml", "a", encoding="utf-8") as contents:
        contents.write("  - file: notebooks/02-planted\n  - file: notebooks/03-planted\n")
    with pytest.raises(ParameterError, match=r"02-planted\.ipynb: 0 cells are tagged 'parameters'"):
        build_book(book_with_pages)
    assert not (book_with_pages / "_build" / "staging").exists()
    write_notebook(notebooks / "02-planted.ipynb", "1")
    with pytest.raises(GateError, match="2 of 3 notebooks") as raised:
        build_book(book_with_pages)
    assert [f"0{k}" in str(raised.value) for k in (1, 2, 3, 4)] == [True, False, True, False]


# --- reuse --------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(tmp_path: Path, repo_root: Path):
    """Stage a book of one notebook, and return how often it has run by then and what was said."""
    root, ran = write_book(tmp_path / "book", repo_root), tmp_path / "ran"
    count = f'with open({str(ran)!r}, "a") as file:\n    file.write("1")'
    beside = 'from pathlib import Path\nPath("01-planted-files").mkdir()\nPath("01-planted-files/beside.txt").touch()'
    write_notebook(root / "notebooks" / "01-planted.ipynb", count, beside)
    (root / "results").mkdir()
    (root / "results" / "a.nc").write_text("a result")

    def staged(scale: str = "published") -> tuple[int, list[str]]:
        said: list[str] = []
        (notebook,) = stage(root, tmp_path / "staging", scale, say=said.append)
        assert (notebook.parent / "01-planted-files" / "beside.txt").exists()
        return len(ran.read_text()), said

    return root, staged


def test_a_notebook_is_reused_until_its_inputs_change(counted):
    root, staged = counted
    assert staged() == (1, ["ran 01-planted"])
    runs, said = staged()
    assert runs == 1
    assert "reused 1 of 1" in said[0]
    assert "01-planted" in said[0]
    assert [staged("demo")[0] for _ in range(2)] == [2, 3]  # there it is to measure
    changes = {
        "notebooks/01-planted.ipynb": ("lr = 0.1", "lr = 0.2"),
        "results/a.nc": ("a result", "another"),
        "_build/executed/01-planted.ipynb": ("lr = 0.2", "lr = 0.3"),
    }
    for runs, (name, change) in enumerate(changes.items(), start=4):
        text = (root / name).read_text()
        (root / name).write_text(text.replace(*change))
        assert (root / name).read_text() != text
        assert staged() == (runs, ["ran 01-planted"])
