"""An archive that others can cite and check: code, data, book and container recipe in one file.

Its root is the tree of a commit, so that what is unpacked is a checkout; beside it lies the built book. A manifest, as
``sha256sum -c`` reads it, has the hash of every file, and the metadata of the crate say what made which.
"""

import html
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from base64 import b64decode
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import IO

from dolb.publishing.book import Say, build_book
from dolb.results.files import write_whole

BOOK = "html"
MANIFEST = "manifest-sha256.txt"
# As for the numbers that tests keep: tight enough to see any change of method, wide enough for another processor.
RELATIVE, ABSOLUTE = 1e-5, 1e-12
# An archive has no history, by which a page names its commit in the footer. Charts and their data are named by hashes
# of numbers, which follow the last bit of these.
_NOT_COMPARED = re.compile(r'(?s)<p class="dolb-build">.*?</p>|\b(?:data|dolb-chart)-[0-9a-f]{10,32}')
# What `dolb pages` and `dolb book` do, of which the first reads every result for the verdicts.
_BUILD = """
import sys, pathlib
from dolb.publishing import build_book
root = pathlib.Path.cwd()
if (root / "book" / "claims.yml").exists():
    from dolb.publishing import pages
    for path, text in pages.made(root).items():
        path.write_text(text, encoding="utf-8")
build_book(root, output=pathlib.Path(sys.argv[1]))
"""
_CSV = re.compile(r'download="([^"]+\.csv)" href="data:[^"]*?base64,([^"]+)"')
_TOKEN = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|[^\W\d]+")


def write(root: Path, target: Path, allow_changes: bool = False, say: Say = lambda _: None) -> Path:
    """Build the book of a checkout and write the archive of both."""
    from dolb.publishing import crate  # takes a moment, which other commands should not pay

    commit, committed, began = _commit(root, allow_changes), _git(root, "show", "-s", "--format=%cI").strip(), _now()
    pages = build_book(root, say=say).parent
    if _commit(root, allow_changes) != commit:
        raise ValueError(f"{root} has changed while the book was built; nothing is written")
    with tempfile.TemporaryDirectory(prefix="dolb-archive-") as folder:
        tree = Path(folder)
        for name in _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
            if (root / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, tree / name)
        shutil.copytree(pages, tree / BOOK)
        crate.describe(tree, BOOK, crate.Built(commit, committed, began, _now()))
        lines = [f"{crate.sha256(tree / name)}  {name}\n" for name in _files(tree)]
        (tree / MANIFEST).write_text("".join(lines), encoding="utf-8")
        write_whole(target, lambda handle: _pack(tree, handle), seal=False)
    return target


def check(file: Path, rebuild: bool = True) -> list[str]:
    """Return a line for each thing that is not as archived: files by their hashes, then pages of the book made again.

    The book is made again with the code of the archive, from its results alone, by this interpreter and its packages.
    """
    with tempfile.TemporaryDirectory(prefix="dolb-archive-") as folder:
        tree = Path(folder)
        return _unpack(file, tree) or _changed_files(tree) or (_changed_pages(tree) if rebuild else [])


def _commit(root: Path, allow_changes: bool) -> str:
    changes = _git(root, "status", "--porcelain").splitlines()
    if changes and not allow_changes:
        known = f"{len(changes)} files are not those of the commit, such as {changes[0][3:]}"
        raise ValueError(f"{known}; commit them, or say --allow-changes")
    return _git(root, "rev-parse", "HEAD").strip() + ("+changes" if changes else "")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(f"{root} is no git checkout, of which an archive is made: {done.stderr.strip()}")
    return done.stdout


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _files(tree: Path) -> list[str]:
    return sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file())


def _pack(tree: Path, target: IO[bytes]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(tree.rglob("*")):  # folders too, for what reads a crate without unpacking it
            archive.write(path, path.relative_to(tree))


def _unpack(file: Path, tree: Path) -> list[str]:
    """Unpack an archive, and return a line for each file of it that cannot be."""
    if not zipfile.is_zipfile(file):
        raise ValueError(f"{file} is no archive; `dolb archive` writes one")
    broken = []
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            try:
                archive.extract(name, tree)
            except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
                broken.append(f"{name} cannot be unpacked: {error}")
    return broken


def _changed_files(tree: Path) -> list[str]:
    """Return a line for each file that is missing, not listed, or not of the hash that the manifest gives."""
    from dolb.publishing.crate import sha256

    if not (tree / MANIFEST).is_file():
        return [f"{MANIFEST} is missing"]
    lines = (tree / MANIFEST).read_text(encoding="utf-8").splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    there = {name: sha256(tree / name) for name in _files(tree) if name != MANIFEST}
    found = [f"{name} is not in {MANIFEST}" for name in there.keys() - listed.keys()]
    found += [f"{name} is missing" for name in listed.keys() - there.keys()]
    found += [f"{name} has changed" for name in listed.keys() & there.keys() if listed[name] != there[name]]
    return sorted(found)


def _changed_pages(tree: Path) -> list[str]:
    """Build the book from what was unpacked, and return a line for each page that says something else."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith("DOLB_")}
    path = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH", "")]))
    again = tree / "_build" / "html"
    command, environment = [sys.executable, "-c", _BUILD, str(again)], usual | {"PYTHONPATH": path}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.replace(f"{tree}{os.sep}", "").strip()
        return f"the book cannot be built again: {re.split(r'Error: ', said, maxsplit=1)[-1]}".splitlines()
    before, after = texts(tree / BOOK), texts(again)
    found = [f"{BOOK}/{name} is not built again" for name in before.keys() - after.keys()]
    found += [f"{BOOK}/{name} is built, and is not in the archive" for name in after.keys() - before.keys()]
    for name in before.keys() & after.keys():
        if difference := first_difference(before[name], after[name]):
            found.append(f"{BOOK}/{name} {difference}")
    return sorted(found)


def texts(book: Path) -> dict[str, str]:
    """Return what the pages of a built book say and draw, and the tables that they offer as CSV."""
    paths = [path for folder in ("book", "notebooks") for path in (book / folder).rglob("*")]
    found = {path.relative_to(book).as_posix(): path.read_text("utf-8") for path in paths if path.suffix == ".csv"}
    for path in (path for path in paths if path.suffix == ".html"):
        name, page = path.relative_to(book).as_posix(), path.read_text(encoding="utf-8")
        found |= {f"{name} {csv}": b64decode(data).decode("utf-8") for csv, data in _CSV.findall(page)}
        found[name] = html.unescape(re.sub("<[^>]+>", " ", _NOT_COMPARED.sub(" ", page)))
    return found


def first_difference(archived: str, found: str) -> str:
    """Return the first word or number that is not the archived one, or nothing; decimals may differ by RELATIVE."""
    if archived == found:
        return ""
    before, after = _TOKEN.findall(archived), _TOKEN.findall(found)
    for place, (one, other) in enumerate(zip_longest(before, after, fillvalue="nothing")):
        if one != other and not _close(one, other):
            return f"has {other}, archived is {one}, after: {' '.join(before[max(0, place - 6) : place])}"
    return ""


def _close(one: str, other: str) -> bool:
    if one.isdigit() and other.isdigit():  # counts
        return False
    try:
        before, after = (float(text.replace("−", "-")) for text in (one, other))
    except ValueError:  # words
        return False
    return math.isclose(before, after, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
