"""An archive holds what a reader needs, says what made each result, and shows what is no longer as it was written."""

import importlib.util
import io
import json
import re
import shutil
import subprocess
import zipfile
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from executed import published_notebooks
from planting import write_book, write_notebook
from typer.testing import CliRunner

from dolb import results
from dolb.cli import app
from dolb.publishing import archive, crate

DRAWN, BESIDE = "even-batches", "tuning"
PAGE = f"""
from dolb import results
from dolb.publishing import panels
drawn, beside = results.published("{DRAWN}"), results.published("{BESIDE}")
files = {{slug: ds["test_accuracy"].isel(epoch=-1).to_dataframe()[["seed", "test_accuracy"]]
         for slug, ds in {{"{DRAWN}": drawn, "{BESIDE}": beside}}.items()}}
panels.what_was_run(drawn, "{DRAWN}", "01-planted", scale, files)
""".strip()
CONTAINER = ("environment.yml", "requirements.lock", "pyproject.toml")
COMMITTED = ("CITATION.cff", "LICENSE", "README.md", ".gitignore", *CONTAINER)
SPAN = {"started_at": 60, "ended_at": 90}  # of the runs of one of the files, seconds from one to the next
MANIFEST, METADATA = archive.MANIFEST, "ro-crate-metadata.json"


def git(root, *arguments):
    who = ["-c", "user.name=A tester", "-c", "user.email=tester@example.org"]
    subprocess.run(["git", "-C", str(root), *who, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, repo_root, vega) -> Path:
    """A commit of the package itself, two results files, and a book with one notebook that draws them."""
    root = write_book(tmp_path_factory.mktemp("checkout"), repo_root)
    shutil.copytree(repo_root / "dolb", root / "dolb", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "results").mkdir()
    for name in (*COMMITTED, f"results/{DRAWN}.nc"):
        shutil.copy(repo_root / name, root / name)
    beside = results.load(repo_root / "results" / f"{BESIDE}.nc")
    times = {name: ("run", 1.8e9 + length * np.arange(beside.sizes["run"])) for name, length in SPAN.items()}
    results.save(beside.assign(times), root / "results" / f"{BESIDE}.nc")
    write_notebook(root / "notebooks" / "01-planted.ipynb", PAGE, "float(drawn['test_accuracy'].max().round(4))")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "A book")
    shutil.copytree(vega, root / "_build" / "staging" / "_build" / "vega")
    return root


@pytest.fixture(scope="module")
def written(checkout, tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("archive") / "dolb.zip"
    return archive.write(checkout, target)


def contents(file) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as whole:
        return {name: whole.read(name) for name in whole.namelist()}


def rewritten(target, files) -> Path:
    with zipfile.ZipFile(target, "w") as whole:
        for name, content in files.items():
            whole.writestr(name, content)
    return target


def replace(files, name, content) -> None:
    """Put a file in the place of another, with its hash in metadata and manifest, as who would hide it does."""
    was, now = (sha256(one).hexdigest().encode() for one in (files[name], content))
    files[name] = content
    for record in (METADATA, MANIFEST):
        if name != record and was in files[record]:
            replace(files, record, files[record].replace(was, now))


def checked(file, *options, code) -> list[str]:
    outcome = CliRunner().invoke(app, ["archive", "--check", str(file), *options])
    assert outcome.exit_code == code, outcome.output
    return outcome.output.splitlines()


def test_an_untouched_archive_has_the_hashes_that_it_says_and_a_flipped_bit_is_named(written, tmp_path):
    assert len(checked(written, "--quick", code=0)) == 1
    with zipfile.ZipFile(written) as whole:
        info = whole.getinfo(f"results/{DRAWN}.nc")
    damaged = bytearray(written.read_bytes())
    damaged[info.header_offset + info.compress_size // 2] ^= 1
    (tmp_path / "flipped.zip").write_bytes(damaged)
    (line,) = checked(tmp_path / "flipped.zip", code=1)
    assert line.startswith(f"results/{DRAWN}.nc ")


def test_files_that_changed_are_missing_or_were_added_are_named_in_a_line_each(written, tmp_path):
    files = contents(written)
    changed = [f"results/{BESIDE}.nc", "html/notebooks/01-planted.html", METADATA]
    missing = [f"results/{DRAWN}.nc", "notebooks/01-planted.ipynb"]
    for name in changed:
        files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])
    for name in missing:
        del files[name]
    files["results/mine.nc"] = b"added"
    lines = checked(rewritten(tmp_path / "changed.zip", files), code=1)
    assert [line.split()[0] for line in lines] == sorted([*changed, *missing, "results/mine.nc"])


def test_an_archive_without_its_manifest_is_no_archive_to_trust(written, tmp_path):
    files = {name: content for name, content in contents(written).items() if name != MANIFEST}
    assert checked(rewritten(tmp_path / "bare.zip", files), code=1) == [f"{MANIFEST} is missing"]


def test_the_book_built_from_the_archive_alone_shows_which_numbers_do_not_follow_from_its_results(written, tmp_path):
    """The hashes are those of the file that was put in the place of another, so that only the numbers tell.

    The other table of the page, and the other pages, are found the same.
    """
    files, name = contents(written), f"results/{DRAWN}.nc"
    (tmp_path / "before.nc").write_bytes(files[name])
    ds = results.load(tmp_path / "before.nc")
    results.save(ds.assign(test_accuracy=ds["test_accuracy"] - 0.01), tmp_path / "after.nc")
    replace(files, name, (tmp_path / "after.nc").read_bytes())
    file = rewritten(tmp_path / "replaced.zip", files)
    page = "html/notebooks/01-planted.html"
    assert [line.split(" has ")[0] for line in checked(file, code=1)] == [f"{page} {DRAWN}.csv", page]


def test_a_tree_with_changes_is_refused(checkout, tmp_path):
    added = checkout / "results" / "mine.nc"
    added.write_text("not committed")
    try:
        with pytest.raises(ValueError, match=r"results/mine\.nc"):
            archive.write(checkout, tmp_path / "dolb.zip")
    finally:
        added.unlink()
    assert not (tmp_path / "dolb.zip").exists()


def test_of_each_result_the_archive_says_what_made_it_and_which_page_shows_it(written, checkout):
    known = {one["@id"]: one for one in json.loads(contents(written)[METADATA])["@graph"]}
    page = known["#page-01-planted"]
    assert page["instrument"]["@id"] == "notebooks/01-planted.ipynb"
    assert page["result"]["@id"] == "html/notebooks/01-planted.html"
    assert {one["@id"] for one in page["object"]} == {f"results/{slug}.nc" for slug in (DRAWN, BESIDE)}
    for slug in (DRAWN, BESIDE):
        file, ds = known[f"results/{slug}.nc"], results.load(checkout / "results" / f"{slug}.nc")
        assert file["sha256"] == crate.sha256(checkout / "results" / f"{slug}.nc")
        made = [one for one in known.values() if one.get("result") == {"@id": file["@id"]}]
        assert {one["name"] for one in made} == {f"dolb sweep {slug} --scale paper --device cuda"}
        software = [known[one["instrument"]["@id"]] for one in made]
        for recorded, said in (("commit", "softwareVersion"), ("torch_version", "softwareRequirements")):
            assert all(any(value in one[said] for one in software) for value in map(str, ds[recorded].values))
        values = [known[value["@id"]] for one in made for value in one["object"]]
        assert {one["value"] for one in values if one["name"] == "device"} == set(map(str, ds["device"].values))
    spans = [[datetime.fromisoformat(one[name]) for name in ("startTime", "endTime")] for one in made]
    assert min(first.timestamp() for first, _ in spans) == ds["started_at"].min()
    assert max(last.timestamp() for _, last in spans) == ds["ended_at"].max()
    assert known[known["./"]["author"]["@id"]]["name"] == "The dolb developers"
    assert known["./"]["license"]["@id"] == "https://spdx.org/licenses/BSD-3-Clause"
    assert {"environment.yml", "requirements.lock", "html/", "dolb/"} <= known.keys()


def test_every_notebook_of_the_book_names_published_results(repo_root):
    there = {path.name for path in (repo_root / "results").iterdir()}
    for path in published_notebooks():
        assert crate.reads(path) & there, path.name
        optional = set(re.findall(r'published_or_none\(\\?"([a-z-]+)', path.read_text()))
        assert crate.reads(path) <= there | {f"{slug}.nc" for slug in optional}, path.name


@pytest.mark.parametrize(
    ("archived", "found", "same"),
    [
        ("gains 0.25", "gains 0.2500001", True),  # another processor's arithmetic
        ("gains 0.25", "gains 0.26", False),
        ("gains 0.25", "gains -0.25", False),
        ("of 1000000 runs", "of 1000001 runs", False),
        ("replicated", "inconclusive", False),
        ("gains 0.25", "gains", False),
    ],
)
def test_a_number_or_a_word_that_is_another_is_told(archived, found, same):
    assert (archive.first_difference(archived, found) == "") is same


def test_the_crate_passes_the_validator_of_its_profile_which_sees_a_fault(written, tmp_path, require_part):
    there = importlib.util.find_spec("rocrate_validator") is not None
    require_part("validator", there, "rocrate-validator is not installed")
    keep_context(tmp_path / "cache")
    files = contents(written)
    assert faults(written, tmp_path / "cache") == []
    replace(files, METADATA, files[METADATA].replace(b'"instrument"', b'"tool"'))
    assert faults(rewritten(tmp_path / "faulty.zip", files), tmp_path / "cache")


def faults(file: Path, cache: Path) -> list[str]:
    """Return what the validator finds wrong, offline: its profiles come with it."""
    from rocrate_validator import services
    from rocrate_validator.models import Severity, ValidationSettings

    asked = {"rocrate_uri": str(file), "profile_identifier": "workflow-run-crate", "cache_path": cache}
    found = services.validate(ValidationSettings(requirement_severity=Severity.REQUIRED, offline=True, **asked))
    return [issue.message for issue in found.get_issues()]


def keep_context(cache: Path) -> None:
    """Put RO-Crate's context, all that the validator fetches, where it looks before it asks the network.

    rocrate brings that of a later version, which says the same of every term used here but one.
    """
    import requests
    import rocrate
    from requests_cache import CachedSession
    from urllib3 import HTTPResponse

    document = json.loads((Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld").read_text(encoding="utf-8"))
    document["@context"]["ComputationalWorkflow"] = "https://bioschemas.org/ComputationalWorkflow"
    body, address = json.dumps(document).encode(), f"https://w3id.org/ro/crate/{crate.VERSION}/context"
    response = requests.Response()
    response.status_code, response.url = 200, address
    response.request = requests.Request("GET", address).prepare()
    response.headers["Content-Type"] = "application/ld+json"
    response.raw = HTTPResponse(body=io.BytesIO(body), status=200, preload_content=False)
    with CachedSession(str(cache), backend="sqlite", expire_after=-1) as session:
        session.cache.save_response(response)
