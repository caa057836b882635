"""An archive holds what a reader needs, says what made each result, and shows what is no longer as it was written."""

import importlib.util
import io
import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from planting import write_book, write_notebook
from typer.testing import CliRunner

from dolb import results
from dolb.cli import app
from dolb.publishing import archive, crate

DRAWN, BESIDE = "even-batches", "tuning"
PAGE = f"""
from dolb import results
from dolb.publishing import panels
ds = results.published("{DRAWN}")
last = ds["test_accuracy"].isel(epoch=-1)
cells = ds[["batch_size", "seed"]].to_dataframe().assign(accuracy=last.values)
panels.what_was_run(ds, "{DRAWN}", "01-planted", scale, {{"cells": cells}})
""".strip()
COMMITTED = (
    "CITATION.cff",
    "LICENSE",
    "README.md",
    "environment.yml",
    "requirements.lock",
    "pyproject.toml",
    ".gitignore",
)


def git(root, *arguments):
    who = ["-c", "user.name=A tester", "-c", "user.email=tester@example.org"]
    subprocess.run(["git", "-C", str(root), *who, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, repo_root, vega) -> Path:
    """A commit of a book with one notebook, which draws one of two results files, and of the package itself."""
    root = write_book(tmp_path_factory.mktemp("checkout"), repo_root)
    shutil.copytree(repo_root / "dolb", root / "dolb", ignore=shutil.ignore_patterns("__pycache__"))
    for name in COMMITTED:
        shutil.copy(repo_root / name, root)
    (root / "results").mkdir()
    for slug in (DRAWN, BESIDE):
        shutil.copy(repo_root / "results" / f"{slug}.nc", root / "results")
    write_notebook(root / "notebooks" / "01-planted.ipynb", PAGE, 'panels.numbers(best=f"{last.values.max():.4f}")',
                   text="The best is {glue:text}`best`.")  # fmt: skip
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "A book")
    shutil.copytree(vega, root / "_build" / "staging" / "_build" / "vega")
    return root


@pytest.fixture(scope="module")
def written(checkout, tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("archive") / "dolb.zip"
    return archive.write(checkout, target, lambda slug, device: f"dolb sweep {slug} --scale paper")


def rewritten(written, target, change) -> Path:
    """Copy an archive with the files that `change`, from a name and its bytes, returns; None leaves a file out."""
    with zipfile.ZipFile(written) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return target


def checked(file, *options, code):
    outcome = CliRunner().invoke(app, ["archive", "--check", str(file), *options])
    assert outcome.exit_code == code, outcome.output
    return outcome.output.splitlines()


def described(written) -> dict:
    with zipfile.ZipFile(written) as whole:
        return {one["@id"]: one for one in json.loads(whole.read("ro-crate-metadata.json"))["@graph"]}


def test_an_untouched_archive_passes_and_its_book_can_be_built_from_it_alone(written):
    (line,) = checked(written, code=0)
    assert "and so is its book" in line


def test_a_flipped_byte_of_a_result_is_named(written, tmp_path):
    with zipfile.ZipFile(written) as whole:
        info = whole.getinfo(f"results/{DRAWN}.nc")
    damaged = bytearray(written.read_bytes())
    damaged[info.header_offset + info.compress_size // 2] ^= 1
    (tmp_path / "flipped.zip").write_bytes(damaged)
    (line,) = checked(tmp_path / "flipped.zip", code=1)
    assert line.startswith(f"results/{DRAWN}.nc cannot be unpacked")


def test_files_that_changed_are_missing_or_were_added_are_named(written, tmp_path):
    def change(name, content):
        if name == f"results/{BESIDE}.nc":
            return content[:-1] + bytes([content[-1] ^ 1])
        return None if name == "html/notebooks/01-planted.html" else content

    file = rewritten(written, tmp_path / "changed.zip", change)
    with zipfile.ZipFile(file, "a") as whole:
        whole.writestr("results/mine.nc", "added")
    missing, added, changed = checked(file, "--quick", code=1)
    assert missing == "html/notebooks/01-planted.html is missing"
    assert added == "results/mine.nc is not in manifest-sha256.txt"
    assert changed.startswith(f"results/{BESIDE}.nc has changed")


def test_a_page_whose_numbers_do_not_follow_from_the_results_is_named(written, tmp_path):
    """The hashes are those of the file that was put in the place of another, so that only the numbers tell."""
    name = f"results/{DRAWN}.nc"
    with zipfile.ZipFile(written) as whole:
        (tmp_path / "before.nc").write_bytes(whole.read(name))
    ds = results.load(tmp_path / "before.nc")
    results.save(ds.assign(test_accuracy=ds["test_accuracy"] - 0.01), tmp_path / "after.nc")
    hashes = [crate.sha256(tmp_path / file).encode() for file in ("before.nc", "after.nc")]
    metadata = []

    def change(file, content):
        if file == "ro-crate-metadata.json":
            (tmp_path / "metadata").write_bytes(content)
            (tmp_path / "changed").write_bytes(content.replace(*hashes))
            metadata.extend(crate.sha256(tmp_path / one).encode() for one in ("metadata", "changed"))
            return content.replace(*hashes)
        if file == "manifest-sha256.txt":
            (tmp_path / "manifest").write_bytes(content)
        return (tmp_path / "after.nc").read_bytes() if file == name else content

    file = rewritten(written, tmp_path / "first.zip", change)
    renewed = (tmp_path / "manifest").read_bytes().replace(*hashes).replace(*metadata)
    file = rewritten(file, tmp_path / "replaced.zip", lambda one, old: renewed if one.startswith("manifest") else old)
    assert checked(file, "--quick", code=0)
    lines = checked(file, code=1)
    assert [line.split(" has ")[0] for line in lines] == [
        "notebooks/01-planted.html cells.csv",
        "notebooks/01-planted.html",
    ]


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "text.zip").write_text("no archive")
    outcome = CliRunner().invoke(app, ["archive", "--check", str(tmp_path / "text.zip")])
    assert outcome.exit_code == 2
    assert "is no archive" in outcome.output


def test_a_tree_with_changes_is_refused(checkout, tmp_path):
    added = checkout / "results" / "mine.nc"
    added.write_text("not committed")
    try:
        with pytest.raises(ValueError, match=r"such as results/mine\.nc; commit them"):
            archive.write(checkout, tmp_path / "dolb.zip", lambda slug, device: "")
    finally:
        added.unlink()
    assert not (tmp_path / "dolb.zip").exists()


def test_of_each_result_the_archive_says_what_made_it_and_which_page_shows_it(written, repo_root):
    known = described(written)
    for slug in (DRAWN, BESIDE):
        file, ds = known[f"results/{slug}.nc"], results.load(repo_root / "results" / f"{slug}.nc")
        assert file["sha256"] == crate.sha256(repo_root / "results" / f"{slug}.nc")
        made = [one for name, one in known.items() if name.startswith(f"#{slug}-")]
        assert {one["result"]["@id"] for one in made} == {file["@id"]}
        assert {one["name"] for one in made} == {f"dolb sweep {slug} --scale paper"}
        software = [known[one["instrument"]["@id"]] for one in made]
        commits = {one["softwareVersion"].split("(")[1].rstrip(")") for one in software}
        assert commits == set(map(str, ds["commit"].values))
        assert not any("startTime" in one for one in made)  # it is not recorded
    page = known["#page-01-planted"]
    assert page["instrument"]["@id"] == "notebooks/01-planted.ipynb"
    assert page["object"]["@id"] == f"results/{DRAWN}.nc"
    assert page["result"]["@id"] == "html/notebooks/01-planted.html"
    assert known[known["./"]["author"]["@id"]]["name"] == "The dolb developers"
    assert known["./"]["license"]["@id"] == "https://spdx.org/licenses/BSD-3-Clause"


def test_the_crate_passes_the_validator_of_its_profile(written, tmp_path, require_part):
    there = importlib.util.find_spec("rocrate_validator") is not None
    require_part("validator", there, "rocrate-validator is not installed")
    from rocrate_validator import services
    from rocrate_validator.models import Severity, ValidationSettings

    cache = tmp_path / "cache"
    keep_context(cache)
    asked = {"rocrate_uri": str(written), "profile_identifier": "workflow-run-crate", "cache_path": cache}
    found = services.validate(ValidationSettings(requirement_severity=Severity.REQUIRED, offline=True, **asked))
    assert [issue.message for issue in found.get_issues()] == []
    assert found.passed()


def keep_context(cache: Path) -> None:
    """Put RO-Crate's context where the validator looks before it asks the network.

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
    response.raw = HTTPResponse(body=io.BytesIO(body), status=200, preload_content=False)
    with CachedSession(str(cache), backend="sqlite", expire_after=-1) as session:
        session.cache.save_response(response)


def test_every_notebook_of_the_book_names_published_results(repo_root):
    there = {path.name for path in (repo_root / "results").iterdir()}
    for path in sorted((repo_root / "notebooks").glob("*.ipynb")):
        assert crate.reads(path), path.name
        assert crate.reads(path) <= there, path.name


@pytest.mark.parametrize(
    ("archived", "found", "said"),
    [
        (["gains", "0.25"], ["gains", "0.2500001"], ""),  # another processor's arithmetic
        (["gains", "0.25"], ["gains", "0.26"], "page has 0.26, archived is 0.25, after: gains"),
        (["gains", "0.25"], ["gains", "-0.25"], "page has -0.25, archived is 0.25, after: gains"),
        (["replicated"], ["inconclusive"], "page has inconclusive, archived is replicated, after: "),
        (["gains", "0.25"], ["gains"], "page has nothing, archived is 0.25, after: gains"),
    ],
)
def test_a_number_or_a_word_that_is_another_is_told(archived, found, said):
    assert archive.first_difference("page", archived, found) == said
