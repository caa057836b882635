"""What is published has run, whole and in order; what has not leaves the previous book as it was."""

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import altair as alt
import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from dolb import publishing as publish
from dolb.publishing import BookError, GateError, ParameterError, build_book, check_notebook, run_notebook, stage

PARAMETERS = 'scale = "published"\nseeds = [0, 1]\nlr = 0.1\nepochs = 2\nfast = False\ndata_dir = None'
CHART = """
import altair as alt
import pandas as pd
from myst_nb import glue
from dolb import publishing as publish
data = pd.DataFrame({"x": [1, 2], "y": [3, 4]})
publish.show(alt.Chart(data).mark_point().encode(x="x", y="y"), "Two points, rising.")
""".strip()


def write_notebook(path: Path, *sources: str) -> Path:
    """Write a notebook without outputs: a title, a parameters cell, and the sources as code cells."""
    cells = [new_markdown_cell("# A planted notebook"), new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})]
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


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory, repo_root: Path) -> Path:
    """A planted book, built once; tests read it and do not change it."""
    intro = "# A planted book\n\nThe answer is {glue:text}`../notebooks/01-planted.ipynb::answer:.1f`.\n"
    root = write_book(tmp_path_factory.mktemp("book"), repo_root, intro)
    write_notebook(root / "notebooks" / "01-planted.ipynb", CHART, 'glue("answer", 6 * 7, display=False)')
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


# --- the book -----------------------------------------------------------------------------------------------------


def test_glued_number_stands_in_the_prose(book):
    text = re.sub("<[^>]+>", "", (book / "_build/html/book/intro.html").read_text())
    assert "The answer is 42.0." in text


def test_index_leads_to_the_first_page(book):
    assert "book/intro.html" in (book / "_build/html/index.html").read_text()


def test_chart_pages_load_the_bundle_from_disk_and_others_do_not_load_it(book):
    chart_page = (book / "_build/html/notebooks/01-planted.html").read_text()
    assert 'src="../_static/vega-bundle.js' in chart_page
    assert "vega-bundle" not in (book / "_build/html/book/intro.html").read_text()
    bundle = (book / "_build/html/_static/vega-bundle.js").read_text()
    versions = json.loads(re.search(r"window\.VEGA_DEBUG=(\{.*?\});", bundle)[1])
    assert versions["vegalite_version"] == alt.VEGALITE_VERSION


def test_no_page_loads_anything_from_another_host(book):
    for name, page in pages(book).items():
        assert not re.search(r'<(script|img|iframe)[^>]+src="(https?:)?//', page), name
        assert not re.search(r'<link[^>]+rel="(stylesheet|preload)"[^>]+href="(https?:)?//', page), name


def test_published_notebook_does_not_name_folders_of_this_machine(book):
    notebook = (book / "_build/html/_sources/notebooks/01-planted.ipynb").read_text()
    assert str(book) not in notebook


def test_plain_jupyter_book_build_works_on_notebooks_without_outputs(book, vega, tmp_path):
    root = tmp_path / "plain"
    shutil.copytree(book, root, ignore=shutil.ignore_patterns("_build"))
    shutil.copytree(vega, root / "_build" / "vega")
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(root), "-q"]
    subprocess.run(command, check=True, capture_output=True)
    assert "publish" in pages(root)["notebooks/01-planted.html"]


def test_number_that_no_notebook_glued_fails_the_build(book_with_pages, vega):
    shutil.copytree(vega, book_with_pages / "_build" / "staging" / "_build" / "vega")
    write_notebook(book_with_pages / "notebooks" / "01-planted.ipynb", "1 + 1")
    (book_with_pages / "book" / "intro.md").write_text(
        "# Book\n\n{glue:text}`../notebooks/01-planted.ipynb::gone:.1f`\n"
    )
    with pytest.raises(BookError, match="'gone' not found in doc 'notebooks/01-planted'"):
        build_book(book_with_pages)
    assert pages(book_with_pages) == {"index.html": "the previous pages"}


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("1 / 0", r"01-planted\.ipynb.*`1 / 0`.*ZeroDivisionError"),
        ("import os; os._exit(1)", r"01-planted\.ipynb: DeadKernelError at cell \d \(`import os; os._exit\(1\)`\)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", r"01-planted\.ipynb: DeadKernelError"),
        ("raise SystemExit(0)", r"01-planted\.ipynb.*SystemExit"),
    ],
    ids=["exception", "exit", "kill", "SystemExit"],
)  # fmt: skip
def test_refused_notebook_is_named_and_the_previous_pages_stay(book_with_pages, cell, said):
    write_notebook(book_with_pages / "notebooks" / "01-planted.ipynb", "1 + 1", cell)
    with pytest.raises(GateError, match=said):
        build_book(book_with_pages)
    assert pages(book_with_pages) == {"index.html": "the previous pages"}


def test_every_refused_notebook_is_named(book_with_pages):
    for name in ("01-planted", "02-planted", "03-planted"):
        write_notebook(book_with_pages / "notebooks" / f"{name}.ipynb", "1 / 0" if name != "02-planted" else "1")
    with pytest.raises(GateError, match="2 of 3 notebooks") as raised:
        stage(book_with_pages, book_with_pages / "_build" / "staging")
    assert "01-planted" in str(raised.value)
    assert "02-planted" not in str(raised.value)
    assert "03-planted" in str(raised.value)


def test_a_notebook_that_the_table_of_contents_does_not_list_is_not_run(book_with_pages, vega):
    shutil.copytree(vega, book_with_pages / "_build" / "staging" / "_build" / "vega")
    write_notebook(book_with_pages / "notebooks" / "01-planted.ipynb")
    write_notebook(book_with_pages / "notebooks" / "02-waits.ipynb", "1 / 0")
    build_book(book_with_pages)
    assert "notebooks/01-planted.html" in pages(book_with_pages)


def test_unknown_notebook_to_stage_is_refused(book_with_pages):
    write_notebook(book_with_pages / "notebooks" / "01-planted.ipynb")
    with pytest.raises(ValueError, match=r"no notebook \['01-plant'\]; accepted are: 01-planted"):
        stage(book_with_pages, book_with_pages / "_build" / "staging", only=["01-plant"])


# --- the gate -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A notebook and its executed copy, which passes the gate."""
    folder = tmp_path_factory.mktemp("executed")
    source = write_notebook(folder / "source.ipynb", "a = 1", "a + 1")
    return source, run_notebook(source, folder / "executed.ipynb", {"scale": "demo", "lr": 1}, progress=False)


def tampered(executed: Path, target: Path, cell: int, **changes: object) -> Path:
    notebook = nbformat.read(executed, as_version=4)
    notebook.cells[cell].update(changes)
    nbformat.write(notebook, target)
    return target


def test_executed_notebook_passes_and_holds_its_parameters(executed):
    source, target = executed
    check_notebook(target, expected_source=source)
    assert "lr = 1" in target.read_text()


def test_unexecuted_cell_is_refused(executed, tmp_path):
    bad = tampered(executed[1], tmp_path / "bad.ipynb", -1, execution_count=None, outputs=[])
    with pytest.raises(GateError, match=r"bad\.ipynb: cell 5 \(`a \+ 1`\) was not executed"):
        check_notebook(bad)


def test_cells_run_out_of_order_are_refused(executed, tmp_path):
    bad = tampered(executed[1], tmp_path / "bad.ipynb", -1, execution_count=7)
    with pytest.raises(GateError, match=r"cell 5 .* has execution count 7; 4 is accepted"):
        check_notebook(bad)


def test_cell_that_the_kernel_never_finished_is_refused(executed, tmp_path):
    bad = tampered(executed[1], tmp_path / "bad.ipynb", -1, metadata={"execution": {"iopub.execute_input": "now"}})
    with pytest.raises(GateError, match=r"cell 5 .* was started and never finished"):
        check_notebook(bad)


def test_error_output_is_refused_whatever_the_metadata_says(executed, tmp_path):
    error = new_output("error", ename="KeyError", evalue="'lr'", traceback=[])
    bad = tampered(executed[1], tmp_path / "bad.ipynb", -1, outputs=[error])
    with pytest.raises(GateError, match=r"cell 5 .* raised KeyError: 'lr'"):
        check_notebook(bad)


def test_stale_inputs_are_refused(executed, tmp_path):
    edited = write_notebook(tmp_path / "source.ipynb", "a = 2", "a + 1")
    with pytest.raises(GateError, match=r"cell 3 \(`a = 1`\) is stale: .* now has cell 3 \(`a = 2`\)"):
        check_notebook(executed[1], expected_source=edited)
    longer = write_notebook(tmp_path / "longer.ipynb", "a = 1", "a + 1", "a + 2")
    with pytest.raises(GateError, match=r"it has 4 cells and .* has 5"):
        check_notebook(executed[1], expected_source=longer)


def test_file_that_is_no_notebook_is_named(tmp_path):
    (tmp_path / "torn.ipynb").write_text('{"cells": [')
    with pytest.raises(GateError, match=r"torn\.ipynb does not read as a notebook"):
        check_notebook(tmp_path / "torn.ipynb")


def test_kernel_is_this_interpreter_whatever_kernelspecs_exist(tmp_path, monkeypatch):
    rogue = tmp_path / "jupyter" / "kernels" / "python3"
    rogue.mkdir(parents=True)
    (rogue / "kernel.json").write_text('{"argv": ["false"], "display_name": "Python 3", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    source = write_notebook(tmp_path / "source.ipynb", f"import sys\nassert sys.executable == {sys.executable!r}")
    run_notebook(source, tmp_path / "executed.ipynb", {}, progress=False)


# --- parameters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"scael": "demo"}, r"no parameter 'scael' \(did you mean 'scale'\?\); accepted are: scale, seeds, lr, epochs"),
        (
            {"scale": 3},
            r"'scale' = 3 is int, but str is accepted \(default 'published'\); parameters are: scale \(str\)",
        ),
        ({"epochs": 1.5}, "'epochs' = 1.5 is float, but int is accepted"),
        ({"epochs": True}, "'epochs' = True is bool, but int is accepted"),
        ({"fast": 1}, "'fast' = 1 is int, but bool is accepted"),
        ({"seeds": 3}, "'seeds' = 3 is int, but list of int is accepted"),
        ({"seeds": ["a"]}, r"'seeds' = \['a'\] is list of str, but list of int is accepted"),
    ],
)
def test_wrong_parameter_is_refused_before_anything_runs(tmp_path, parameters, said):
    source = write_notebook(tmp_path / "source.ipynb", 'open("ran", "w").close()')
    with pytest.raises(ParameterError, match=said):
        run_notebook(source, tmp_path / "executed.ipynb", parameters, cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.ipynb"]


def test_every_notebook_is_checked_before_the_first_one_runs(book_with_pages):
    write_notebook(book_with_pages / "notebooks" / "01-planted.ipynb")
    nbformat.write(new_notebook(), book_with_pages / "notebooks" / "02-none.ipynb")
    with open(book_with_pages / "_toc.yml", "a", encoding="utf-8") as contents:
        contents.write("  - file: notebooks/02-none\n")
    with pytest.raises(ParameterError, match=r"02-none\.ipynb: 0 cells are tagged 'parameters'"):
        build_book(book_with_pages)
    assert not (book_with_pages / "_build" / "staging").exists()


# --- what notebooks display ---------------------------------------------------------------------------------------


def test_chart_carries_its_description_and_its_own_id():
    data = pd.DataFrame({"x": [1], "name": ["</script><b>"]})
    chart = alt.Chart(data).mark_point().encode(x="x", color="name")
    first, second = (publish.show(chart, 'Rises "fast" & <falls>.').data for _ in range(2))
    assert 'role="img" aria-label="Rises &quot;fast&quot; &amp; &lt;falls&gt;."' in first
    assert first.count("</script>") == 1
    ids = [re.search(r'<div id="([^"]+)"', markup)[1] for markup in (first, second)]
    assert ids[0] != ids[1]


def test_provenance_panel_escapes_everything_and_carries_the_csv():
    panel = publish.provenance_panel(
        {"<b>": "<script>", "seeds": [0, 1]}, 'papermill a.ipynb -p x "<i>"', "a,b\n1,é\n", '"><img>.csv'
    ).data
    for harmful in ("<b>", "<script>", "<i>", "<img>"):
        assert harmful not in panel
    assert "papermill a.ipynb -p x &quot;&lt;i&gt;&quot;" in panel
    assert base64.b64decode(re.search(r"base64,([^\"]+)", panel)[1]).decode() == "a,b\n1,é\n"


def test_a_panel_may_carry_the_data_of_several_figures():
    panel = publish.provenance_panel({}, "papermill a.ipynb", "a,b", "one.csv", {"two.csv": "c,d"})
    assert [f'download="{name}"' in panel.data for name in ("one.csv", "two.csv")] == [True, True]


def test_provenance_panel_without_data_has_no_link():
    assert "<a " not in publish.provenance_panel({}, "papermill a.ipynb", None, "a.csv").data


def test_a_file_can_be_saved_from_the_page_itself():
    page = publish.downloads({"a.json": "{}"}, "Traces <here>:").data
    assert 'download="a.json"' in page
    assert base64.b64encode(b"{}").decode() in page
    assert "&lt;here&gt;" in page


def test_a_table_has_its_long_cells_whole():
    said = "a text of more characters than pandas shows by default, which are fifty and no more"
    shown = publish.table(pd.DataFrame({"ours": [said]}, index=["a part"]))
    assert said in shown.data
    assert 'class="dataframe"' in shown.data
    assert said in repr(shown)
