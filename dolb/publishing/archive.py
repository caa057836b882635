"""An archive that others can cite and check: code, data, book and container recipe in one file.

Its root is the tree of a commit, so that what is unpacked is a checkout; beside it lies the built book. A manifest, as
``sha256sum -c`` reads it, has the hash of every file, and the metadata of the crate say what made which.
"""

from __future__ import annotations

import html
import json
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
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from urllib.parse import unquote

from dolb.publishing.book import build_book
from dolb.results.files import write_whole

BOOK = "html"
MANIFEST = "manifest-sha256.txt"
METADATA = "ro-crate-metadata.json"
# As for the numbers that tests keep: tight enough to see any change of method, wide enough for another processor.
RELATIVE, ABSOLUTE = 1e-5, 1e-6
# An archive has no history, by which a page orders the commits of its runs and names its own in the footer.
_OF_THE_HISTORY = re.compile(
    r'<(script|style)\b.*?</\1>|<p class="dolb-build">.*?</p>|<tr><th scope="row">commit</th>.*?</tr>', flags=re.DOTALL
)
_CSV = re.compile(r'download="([^"]+\.csv)" href="data:[^"]*?base64,([^"]+)"')
_TOKEN = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|[^\W\d]+")


def write(
    root: Path,
    target: Path,
    made_by: Callable[[str, str], str],
    allow_changes: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """Build the book of a checkout and write the archive of both; ``made_by`` names what made results."""
    from dolb.publishing import crate  # takes a moment, which other commands should not pay

    changes = _git(root, "status", "--porcelain").splitlines()
    if changes and not allow_changes:
        raise ValueError(
            f"{len(changes)} files are not those of the commit, such as {changes[0][3:]}; "
            "commit them, or say --allow-changes"
        )
    begun = _now()
    pages = build_book(root, say=say).parent
    commit = _git(root, "rev-parse", "HEAD").strip() + ("+changes" if changes else "")
    built = crate.Built(commit, _git(root, "show", "-s", "--format=%cI").strip(), begun, _now())
    with tempfile.TemporaryDirectory(prefix="dolb-archive-") as folder:
        tree = Path(folder)
        for name in _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
            if name and (root / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, tree / name)
        shutil.copytree(pages, tree / BOOK)
        crate.describe(tree, BOOK, built, made_by)
        lines = [f"{crate.sha256(tree / name)}  {name}\n" for name in _files(tree)]
        (tree / MANIFEST).write_text("".join(lines), encoding="utf-8")
        write_whole(target, lambda temporary: _pack(tree, temporary), seal=False)
    return target


def check(file: Path, rebuild: bool = True) -> list[str]:
    """Return a line for each thing that is not as archived: files by their hashes, then pages of the book made again.

    The book is made again with the code of the archive, from its results alone, by this interpreter and its packages.
    """
    with tempfile.TemporaryDirectory(prefix="dolb-archive-") as folder:
        tree = Path(folder)
        found = _unpack(file, tree) or _changed_files(tree)
        return found if found or not rebuild else _changed_pages(tree)


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(f"{root} is no git checkout, of which an archive is made: {done.stderr.strip()}")
    return done.stdout


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _files(tree: Path) -> list[str]:
    return sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file())


def _pack(tree: Path, target: str) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _files(tree):
            archive.write(tree / name, name)


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
    if not broken and not (tree / MANIFEST).is_file():
        raise ValueError(f"{file} has no {MANIFEST}; `dolb archive` writes archives that have one")
    return broken


def _changed_files(tree: Path) -> list[str]:
    """Return a line for each file that is missing, not listed, or not of the hash that manifest or metadata give."""
    from dolb.publishing.crate import sha256

    lines = (tree / MANIFEST).read_text(encoding="utf-8").splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    there = {name: sha256(tree / name) for name in _files(tree) if name != MANIFEST}
    found = [f"{name} is missing" for name in listed.keys() - there.keys()]
    found += [f"{name} is not in {MANIFEST}" for name in there.keys() - listed.keys()]
    found += [_other_hash(name, there[name], listed[name]) for name in there.keys() & listed.keys()]
    if not any(found):
        graph = json.loads((tree / METADATA).read_text(encoding="utf-8"))["@graph"]
        known = {unquote(entity["@id"]): entity["sha256"] for entity in graph if "sha256" in entity}
        found = [_other_hash(name, there.get(name, "none"), digest) for name, digest in known.items()]
    return sorted(filter(None, found))


def _other_hash(name: str, digest: str, archived: str) -> str:
    return "" if digest == archived else f"{name} has changed: its sha256 is {digest[:12]}, archived is {archived[:12]}"


def _changed_pages(tree: Path) -> list[str]:
    """Build the book from what was unpacked, and return a line for each page that says something else."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith("DOLB_")}
    path = os.pathsep.join(filter(None, [str(tree), os.environ.get("PYTHONPATH", "")]))
    again = tree / "_build" / "html"
    command = [sys.executable, "-m", "dolb.cli", "book", "--output", str(again)]
    done = subprocess.run(
        command, cwd=tree, env=usual | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        return [f"the book cannot be built again: {said[0] if said else 'nothing was said'}"]
    before, after = texts(tree / BOOK), texts(again)
    found = [f"{name} is not built again" for name in before.keys() - after.keys()]
    found += [f"{name} is built, and is not in the archive" for name in after.keys() - before.keys()]
    found += [first_difference(name, before[name], after[name]) for name in before.keys() & after.keys()]
    return sorted(filter(None, found))


def texts(book: Path) -> dict[str, list[str]]:
    """Return the words and numbers of a built book: of its pages, and of the tables that are offered as CSV."""
    found = {path.relative_to(book).as_posix(): path.read_text(encoding="utf-8") for path in book.rglob("*.csv")}
    for path in [*book.glob("book/*.html"), *book.glob("notebooks/*.html")]:
        name, page = path.relative_to(book).as_posix(), path.read_text(encoding="utf-8")
        found |= {f"{name} {csv}": b64decode(data).decode("utf-8") for csv, data in _CSV.findall(page)}
        found[name] = html.unescape(re.sub("<[^>]+>", " ", _OF_THE_HISTORY.sub(" ", page)))
    return {name: _TOKEN.findall(text) for name, text in found.items()}


def first_difference(name: str, archived: list[str], found: list[str]) -> str:
    """Return a line on the first word or number that is not the archived one, or nothing."""
    for place, (before, after) in enumerate(zip_longest(archived, found, fillvalue="nothing")):
        if before != after and not _close(before, after):
            return f"{name} has {after}, archived is {before}, after: {' '.join(archived[max(0, place - 6) : place])}"
    return ""


def _close(before: str, after: str) -> bool:
    try:
        one, other = (float(text.replace("−", "-")) for text in (before, after))
    except ValueError:
        return False
    return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
