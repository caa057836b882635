"""Stage the book with its notebooks executed, reuse those whose inputs are the same, and build its pages."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import dolb
from dolb.publishing.gate import GateError, check_notebook
from dolb.publishing.notebooks import prepare_for_readers, run_notebook
from dolb.publishing.parameters import check_parameters

_JUPYTER_BOOK = [sys.executable, "-c", "import dolb; from jupyter_book.cli.main import main; main()"]
REUSED_SCALE = "published"  # at the others a notebook is there to measure, so it measures
Say = Callable[[str], None]


class BookError(RuntimeError):
    """The notebooks passed the gate, but `jupyter-book build` failed or warned."""


def build_book(
    root: Path, scale: str = "published", jobs: int | None = None, output: Path | None = None, say: Say = lambda _: None
) -> Path:
    """Execute, gate and build the book of `root`, and return its index page.

    The pages go to `output` (default `_build/html`) and replace the previous ones only when everything passed.
    """
    root = root.resolve()
    pages = (output or root / "_build" / "html").resolve()
    staging = pages.parent / "staging"
    if pages.exists() and not pages.is_dir():
        raise NotADirectoryError(f"the pages cannot go to {pages}, which is a file; accepted: a folder")
    stage(root, staging, scale, jobs, say)
    return build_pages(staging, pages)


def stage(
    root: Path, staging: Path, scale: str = "published", jobs: int | None = None, say: Say = lambda _: None
) -> list[Path]:
    """Copy the book tree of `root` to `staging` with its notebooks executed at `scale`, and return the notebooks.

    They are those that the table of contents lists: one whose results are not published yet is not there. They run in
    the staging folder, `jobs` at a time (default: one per CPU core). All of them are run before the failures are
    raised, as one GateError that names each. At `published` scale one that has run before with the same inputs is taken
    from `_build/executed`, through the gate.
    """
    sources = listed(root)
    # A parameter equal to its default is not passed: the notebook is then the one that is committed.
    defaults = {source: check_parameters(source, {"scale": scale})["scale"] for source in sources}
    parameters = {source: {} if usual == scale else {"scale": scale} for source, usual in defaults.items()}

    _copy_tree(root, staging)
    (staging / "build.json").write_text(json.dumps(_build_info(root, scale), indent=1), encoding="utf-8")
    shared = shared_inputs(root)
    inputs = {source: digest(shared, source.read_bytes(), parameters[source]) for source in sources}
    kept = root / "_build" / "executed"
    reused = [one for one in sources if scale == REUSED_SCALE and _fresh(kept / one.name, one, inputs[one])]
    if reused:
        names = ", ".join(source.stem for source in reused)
        say(f"reused {len(reused)} of {len(sources)} notebooks, whose inputs are the same: {names}")
    for source in reused:
        _copy_notebook(kept / source.name, staging / "notebooks")

    def execute(source: Path) -> str:
        target = staging / "notebooks" / source.name
        try:
            run_notebook(source, target, parameters[source], cwd=target.parent, progress=False)
        except GateError as error:
            return str(error)
        say(f"ran {source.stem}")
        prepare_for_readers(target, inputs[source])
        if scale == REUSED_SCALE:
            _copy_notebook(target, kept)
        return ""

    with ThreadPoolExecutor(max_workers=jobs or os.cpu_count()) as pool:
        failures = list(filter(None, pool.map(execute, [source for source in sources if source not in reused])))
    if failures:
        summary = f"{len(failures)} of {len(sources)} notebooks refused; nothing is published"
        raise GateError("\n".join([summary, *failures]))
    return [staging / "notebooks" / source.name for source in sources]


def listed(root: Path) -> list[Path]:
    """Return the notebooks that the table of contents lists, in its order."""
    contents = (root / "_toc.yml").read_text(encoding="utf-8")
    names = re.findall(r"^\s*- file: (notebooks/\S+?)(?:\.ipynb)?\s*$", contents, flags=re.MULTILINE)
    return [root / f"{name}.ipynb" for name in names]


def build_pages(staging: Path, pages: Path) -> Path:
    """Build the pages of a staged book, whose notebooks have run, put them at `pages`, and return the index page."""
    command = [*_JUPYTER_BOOK, "build", str(staging), "--all", "-W", "--keep-going"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr).splitlines()
        warnings = [line for line in said if "WARNING" in line or "ERROR" in line or "Error" in line]
        summary = f"jupyter-book build {staging} failed; the previous pages stay"
        raise BookError("\n".join([summary, *(warnings or said[-30:])]))
    built = staging / "_build" / "html"
    for notebook in (staging / "notebooks").glob("*.ipynb"):
        if (beside := files_of(notebook)).is_dir():
            shutil.copytree(beside, built / "notebooks" / beside.name)
    previous = pages.with_name(pages.name + ".previous")
    shutil.rmtree(previous, ignore_errors=True)
    if pages.exists():
        pages.rename(previous)
    built.rename(pages)
    shutil.rmtree(previous, ignore_errors=True)
    return pages / "index.html"


def files_of(notebook: Path) -> Path:
    """Return the folder beside a notebook whose files are published beside its page, under the same relative name."""
    return notebook.with_name(f"{notebook.stem}-files")


def shared_inputs(root: Path) -> str:
    """Return the digest of what every notebook of a book may depend on: package, claims, results, installed versions.

    All of it counts for each of them. What a notebook really reads would have to be guessed, and a guess can be wrong.
    """
    package = Path(dolb.__file__).resolve().parent
    read = {
        *(path for path in package.rglob("*") if path.suffix not in (".pyc", "") and path.is_file()),
        *(package.parent / "book").glob("*.yml"),
        *(root / "results").glob("*"),
        *Path(os.environ.get("DOLB_RESULTS") or package.parent / "results").glob("*"),
    }
    contents = [part for path in sorted(read) for part in (path.name, path.read_bytes())]
    versions = sorted({f"{one.metadata['Name']} {one.version}" for one in metadata.distributions()})
    return digest(sys.version, *versions, *contents)


def digest(*parts: str | bytes | Mapping[str, Any]) -> str:
    """Return a hash of all parts, each told from the next."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True, default=repr).encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _fresh(executed: Path, source: Path, inputs: str) -> bool:
    """Whether an executed notebook is there, passes the gate, and was made from these inputs."""
    try:
        check_notebook(executed, source, inputs)
    except (FileNotFoundError, GateError):
        return False
    return True


def _copy_notebook(notebook: Path, folder: Path) -> None:
    """Copy an executed notebook and the files beside it; the notebook last and whole, as it vouches for the others."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = files_of(notebook)
    shutil.rmtree(folder / beside.name, ignore_errors=True)
    if beside.is_dir():
        shutil.copytree(beside, folder / beside.name)
    partial = folder / f"{notebook.name}.partial"
    shutil.copy2(notebook, partial)
    partial.replace(folder / notebook.name)


def _copy_tree(root: Path, staging: Path) -> None:
    """Make `staging` a fresh copy of what the book is made of, without notebooks and without old pages."""
    # Only the Vega bundle's cache outlives a build: it depends on package versions alone, and takes seconds to make.
    for old in [*staging.glob("*"), *staging.glob("_build/*")]:
        if old.name not in ("_build", "vega"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    (staging / "notebooks").mkdir(parents=True, exist_ok=True)
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy2(root / name, staging / name)
    skip = shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__")
    for name in ("book", "results"):
        if (root / name).is_dir():
            shutil.copytree(root / name, staging / name, ignore=skip)


def _build_info(root: Path, scale: str) -> dict[str, str]:
    """Say which dolb, which commit and which scale the book is made of; every page's footer shows it."""
    git = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--match="]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:  # no git on this machine
        commit = ""
    return {"version": dolb.__version__, "commit": commit or "unknown", "scale": scale}
