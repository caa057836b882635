"""What a reader of the repository is told is true: its commands, links, licence and citation."""

import importlib
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from executed import published_notebooks

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = ["README.md", "CONTRIBUTING.md"]

# Package registries: everyone has a different way to them, and pip, npm and apt know it.
REGISTRIES = re.compile(
    rb"pypi\.(?:org|python\.org)|pythonhosted\.org|npmjs\.(?:org|com)|yarnpkg\.com"
    rb"|(?:deb|security|ftp)\.debian\.org|(?:archive|security|ports)\.ubuntu\.com"
)


def tracked_files():
    """The files that git tracks, or would with `git add .`."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def commands(page):
    """Every command of the page's bash blocks, split into words, with SLUG and DIR made concrete."""
    text = (ROOT / page).read_text()
    lines = "\n".join(re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)).splitlines()
    words = [shlex.split(line.replace("SLUG", "batch-size").replace("DIR", "store"), comments=True) for line in lines]
    return [line for line in words if line]


def commands_of(program):
    return [
        pytest.param(words[1:], id=f"{page}: {shlex.join(words)}")
        for page in PAGES
        for words in commands(page)
        if words[0] == program
    ]


def test_the_readme_starts_with_the_two_commands():
    assert commands("README.md")[:2] == [["make", "book"], ["make", "test"]]


@pytest.mark.parametrize("arguments", commands_of("make"))
def test_a_documented_make_command_has_its_target(arguments):
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    variables = set(re.findall(r"^([A-Z_]+)\s*\?=", makefile, flags=re.MULTILINE))
    for word in arguments:
        name, is_variable, _ = word.partition("=")
        assert name in (variables if is_variable else targets)


@pytest.mark.parametrize("arguments", commands_of("dolb"))
def test_a_documented_dolb_command_parses(arguments):
    from typer.main import get_command

    subcommands = get_command(importlib.import_module("dolb.cli").app).commands
    assert arguments[0] in subcommands
    subcommands[arguments[0]].make_context(arguments[0], list(arguments[1:]))  # parses all, runs nothing


@pytest.mark.parametrize("arguments", commands_of("papermill"))
def test_a_documented_papermill_command_names_a_notebook_and_its_parameters(arguments):
    notebook = ROOT / arguments[0]
    assert notebook.exists()
    given = {arguments[i + 1] for i, word in enumerate(arguments) if word == "-p"}
    assert given <= set(importlib.import_module("dolb.publishing.parameters").read_parameters(notebook))


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_every_relative_link_and_picture_is_there(page):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text())
    missing = [target for target in targets if "://" not in target and not (ROOT / target).exists()]
    assert not missing


def test_every_notebook_is_a_page_of_the_book():
    listed = re.findall(r"file: (notebooks/\S+)", (ROOT / "_toc.yml").read_text())
    assert sorted(listed) == sorted(f"notebooks/{path.stem}" for path in published_notebooks())


def test_the_licence_is_the_one_that_pyproject_names():
    assert PROJECT["license"] == "BSD-3-Clause"
    text = (ROOT / "LICENSE").read_text()
    assert text.startswith("BSD 3-Clause License\n")
    assert re.search(r"^Copyright \(c\) \d{4}, the dolb developers$", text, flags=re.MULTILINE)


def test_the_citation_is_complete_and_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]


def test_the_citation_refers_to_every_source_of_a_claim():
    path = ROOT / "book" / "claims.yml"
    written = yaml.safe_load(path.read_text())
    references = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]
    first_authors = {reference["authors"][0]["family-names"].lower() for reference in references}
    assert first_authors == {re.sub(r"\d.*", "", key) for key in written["sources"]}
    assert {claim["source"] for claim in written["claims"]} <= set(written["sources"])


def test_the_package_and_the_changelog_are_of_this_version():
    assert importlib.import_module("dolb").__version__ == PROJECT["version"]
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text()


def test_no_file_names_a_package_registry():
    named = [str(path.relative_to(ROOT)) for path in tracked_files() if REGISTRIES.search(path.read_bytes())]
    assert not named


def test_no_file_names_the_folder_it_was_written_in():
    here = str(ROOT).encode()
    if len(ROOT.parts) < 3:
        pytest.skip(f"{ROOT} is too short a name to search for")
    named = [str(path.relative_to(ROOT)) for path in tracked_files() if here in path.read_bytes()]
    assert not named


def test_ci_runs_the_documented_test_command():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, ".ci/run is not executable"
    assert {"make test", "make lint"} <= set(script.read_text().splitlines())
