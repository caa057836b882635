"""What an archive says of itself as a Workflow Run RO-Crate: what made each result, and which page shows it."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas as pd
import xarray as xr
import yaml
from rocrate.model.computationalworkflow import ComputationalWorkflow
from rocrate.model.computerlanguage import ComputerLanguage
from rocrate.model.contextentity import ContextEntity
from rocrate.rocrate import ROCrate

from dolb import results

# The profiles that the crate follows, of which those on runs are written for RO-Crate 1.1.
VERSION = "1.1"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
TERMS = {name: f"https://w3id.org/ro/terms/workflow-run#{name}" for name in ("sha256", "resourceUsage")}
# What repo2docker, and so Binder and a hub, make the container from.
CONTAINER = ("environment.yml", "requirements.lock", "pyproject.toml", "apt.txt", "postBuild")
FOLDERS = {
    "dolb": "the package",
    "notebooks": "one notebook per experiment, without outputs",
    "results": "published measurements",
    "book": "pages written by people, claims, references",
    "benchmarks": "programs that time steps",
    "deploy": "what builds environments",
    "tests": "tests of the package",
}
FORMATS = {
    ".nc": "application/x-netcdf",
    ".ipynb": "application/x-ipynb+json",
    ".html": "text/html",
    ".npz": "application/zip",
}
WORKFLOW = "dolb/publishing/book.py"
MadeBy = Callable[[str, str], str]


@dataclass(frozen=True)
class Built:
    """Which commit an archive holds, from when it is, and when its book was built."""

    commit: str
    committed: str
    begun: str
    ended: str


def describe(tree: Path, book: str, built: Built, made_by: MadeBy) -> None:
    """Write ``ro-crate-metadata.json`` into the tree of an archive, whose built book is the folder ``book``.

    ``made_by`` says which command made the results of a slug on a device.
    """
    crate = ROCrate(version=VERSION)
    crate.metadata.extra_terms.update(TERMS)
    cited = yaml.safe_load((tree / "CITATION.cff").read_text(encoding="utf-8"))
    authors = _describe_root(crate, cited, built)
    _add_folders(crate, tree, book)
    files = {path.name: _add_file(crate, tree, path) for path in sorted((tree / "results").glob("*.n[cp]*"))}
    for slug, file in ((name.removesuffix(".nc"), file) for name, file in files.items() if name.endswith(".nc")):
        _add_runs(crate, file, results.load(tree / file.id), slug, made_by)
    notebooks = _add_notebooks(crate, tree, book, files, cited["version"])
    workflow = _add_workflow(crate, tree, cited["version"], notebooks)
    times = {"startTime": built.begun, "endTime": built.ended}
    pages = crate.get(f"{book}/")
    _add_action(crate, "#book", "dolb book", workflow, files.values(), pages, runs="every notebook and page", **times)
    verdicts = tree / book / "book" / "verdicts.html"
    if verdicts.exists():
        software = _software(crate, cited["version"], built.commit)
        _add_action(crate, "#verdicts", "dolb pages", software, files.values(), _add_file(crate, tree, verdicts))
    for action in crate.get_by_type("CreateAction"):
        action["agent"] = _unwrapped(authors)
        crate.root_dataset.append_to("mentions", action)
    crate.metadata.write(tree)


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe_root(crate: ROCrate, cited: Mapping[str, Any], built: Built) -> list[ContextEntity]:
    """Give the crate its title, authors, licence and profiles, and return the authors."""
    authors = [_author(crate, one) for one in cited["authors"]]
    licence = _add(crate, f"https://spdx.org/licenses/{cited['license']}", "CreativeWork", name=cited["license"])
    profiles = [
        _add(crate, address, "CreativeWork", name=name, version=address.rsplit("/")[-1])
        for address, name in PROFILES.items()
    ]
    root = crate.root_dataset
    root["name"], root["description"] = cited["title"], cited["abstract"].strip()
    root["keywords"], root["version"] = ", ".join(cited["keywords"]), cited["version"]
    root["identifier"], root["datePublished"] = built.commit, built.committed
    root["author"] = root["creator"] = root["publisher"] = _unwrapped(authors)
    root["license"], root["conformsTo"] = licence, profiles
    return authors


def _author(crate: ROCrate, author: Mapping[str, str]) -> ContextEntity:
    if "name" in author:
        address = author.get("website", "#" + _named(author["name"]))
        return _add(crate, address, "Organization", name=author["name"])
    name = f"{author['given-names']} {author['family-names']}"
    more = {"affiliation": author["affiliation"]} if "affiliation" in author else {}
    return _add(crate, author.get("orcid", "#" + _named(name)), "Person", name=name, **more)


def _add_folders(crate: ROCrate, tree: Path, book: str) -> None:
    for name, meaning in {**FOLDERS, book: "the built book"}.items():
        if (tree / name).is_dir():
            crate.add_dataset(tree / name, f"{name}/", properties={"name": name, "description": meaning})
    for name in ("LICENSE", "CITATION.cff", *CONTAINER):
        if (tree / name).is_file():
            more = {"description": "part of the container's recipe"} if name in CONTAINER else {}
            _add_file(crate, tree, tree / name, **more)
    if (tree / "README.md").is_file():
        _add_file(crate, tree, tree / "README.md", encodingFormat="text/markdown", about=crate.root_dataset)


def _add_file(crate: ROCrate, tree: Path, path: Path, **more: Any) -> Any:
    known = {"name": path.name, "contentSize": str(path.stat().st_size), "sha256": sha256(path)}
    format_ = {"encodingFormat": FORMATS.get(path.suffix, "text/plain")}
    return crate.add_file(path, path.relative_to(tree).as_posix(), properties=known | format_ | more)


def _add_runs(crate: ROCrate, file: Any, ds: xr.Dataset, slug: str, made_by: MadeBy) -> None:
    """Add an action for the runs of a file that one commit made with one torch on one device."""
    names = ["dolb_version", "commit", "torch_version", "device", "source"]
    columns = {name: ds[name].to_numpy() for name in [*names, "data_fingerprint", "measured_at"] if name in ds}
    columns["seconds"] = (
        results.device_seconds(ds).to_numpy() if "concurrent_runs" in ds else np.full(ds.sizes["run"], np.nan)
    )
    for number, (values, runs) in enumerate(pd.DataFrame(columns).groupby(names)):
        known = dict(zip(names, map(str, values), strict=True))
        inputs = [_value(crate, name, known[name]) for name in ("device", "source")]
        inputs += [_value(crate, "data fingerprint", one) for one in sorted(set(runs["data_fingerprint"])) if one]
        # When a run began and ended is recorded of benchmarks alone, and of these the end.
        ended = max(runs["measured_at"]) if "measured_at" in runs else ""
        more: dict[str, Any] = {"endTime": ended} if ended else {}
        if (seconds := runs["seconds"].sum()) > 0:
            more["resourceUsage"] = _value(crate, "device seconds", f"{seconds:.0f}")
        software = _software(crate, known["dolb_version"], known["commit"], known["torch_version"])
        called = made_by(slug, known["device"])
        _add_action(crate, f"#{slug}-{number}", called, software, inputs, file, runs=f"{len(runs)} runs", **more)


def _add_notebooks(crate: ROCrate, tree: Path, book: str, files: Mapping[str, Any], version: str) -> list[Any]:
    """Add each notebook that has a page, and the action that draws results on that page."""
    notebooks = []
    for path in sorted((tree / "notebooks").glob("*.ipynb")):
        page = tree / book / "notebooks" / f"{path.stem}.html"
        if page.exists():
            more = {"@type": ["File", "SoftwareSourceCode"], "version": version}
            notebook = _add_file(crate, tree, path, **more)
            drawn = [files[name] for name in sorted(reads(path) & files.keys())]
            called = f"papermill notebooks/{path.name} out.ipynb -p scale published"
            _add_action(crate, f"#page-{path.stem}", called, notebook, drawn, _add_file(crate, tree, page))
            notebooks.append(notebook)
    return notebooks


def reads(notebook: Path) -> set[str]:
    """Return the names of the results files that a notebook asks for, by its code."""
    cells = [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    nodes = [node for cell in cells for node in ast.walk(ast.parse(cell))]
    given = {
        node.targets[0].id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    asked = {"published": ".nc", "published_or_none": ".nc", "published_file": ""}
    found = set()
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in asked:
            first = node.args[0]
            value = given.get(first.id) if isinstance(first, ast.Name) else first
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found.add(f"{value.value}{asked[node.func.attr]}")
    return found


def _add_workflow(crate: ROCrate, tree: Path, version: str, notebooks: list[Any]) -> Any:
    """Add the workflow that runs the notebooks and builds the book."""
    about = {"name": "Run the notebooks and build the book", "version": version, "sha256": sha256(tree / WORKFLOW)}
    about |= {"encodingFormat": "text/x-python"}
    python = ComputerLanguage(crate, "#python", {"name": "Python", "url": "https://www.python.org/"})
    workflow = crate.add_workflow(
        tree / WORKFLOW, WORKFLOW, properties=about, main=True, lang=crate.add(python), cls=ComputationalWorkflow
    )
    workflow["hasPart"] = notebooks
    return workflow


def _add_action(
    crate: ROCrate,
    identifier: str,
    name: str,
    instrument: Any,
    inputs: Iterable[Any],
    made: Any,
    runs: str = "",
    **more: Any,
) -> None:
    about = {"name": name, "description": f"`{name}`" + (f": {runs}" if runs else "")}
    crate.add_action(instrument, identifier, object=_unwrapped(list(inputs)), result=made, properties=about | more)


def _software(crate: ROCrate, version: str, commit: str, torch: str = "") -> Any:
    """Return this package as it was at a commit, with the torch that it ran on."""
    identifier = f"#dolb-{_named(commit)}" + (f"-torch-{_named(torch)}" if torch else "")
    needs = {}
    if torch:
        named = {"name": "torch", "softwareVersion": torch, "url": "https://pytorch.org/"}
        needs["softwareRequirements"] = {
            "@id": _add(crate, f"#torch-{_named(torch)}", "SoftwareApplication", **named).id
        }
    return _add(crate, identifier, "SoftwareApplication", name="dolb", softwareVersion=f"{version} ({commit})", **needs)


def _value(crate: ROCrate, name: str, value: str) -> Any:
    identifier = f"#{_named(name)}-{hashlib.sha256(value.encode()).hexdigest()[:12]}"
    return _add(crate, identifier, "PropertyValue", name=name, value=value)


def _add(crate: ROCrate, identifier: str, kind: str, **about: Any) -> Any:
    """Return an entity that is no file, which is added at the first call."""
    return crate.get(identifier) or crate.add(ContextEntity(crate, identifier, properties={"@type": kind, **about}))


def _unwrapped(values: list[Any]) -> Any:
    """Return the only value of a list as JSON-LD has it, without the list."""
    return values[0] if len(values) == 1 else values


def _named(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
