"""What an archive says of itself as a Workflow Run RO-Crate: what made each result, and which page shows it."""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

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
FORMATS = {".nc": "application/x-netcdf", ".npz": "application/zip", ".ipynb": "application/x-ipynb+json"}
FORMATS |= {".html": "text/html", ".md": "text/markdown", ".py": "text/x-python"}
WORKFLOW = "dolb/publishing/book.py"
SPAN = ("started_at", "ended_at")


class Built(NamedTuple):
    """Which commit an archive holds, from when it is, and when its book was built."""

    commit: str
    committed: str
    began: str
    ended: str


def describe(tree: Path, book: str, built: Built) -> None:
    """Write ``ro-crate-metadata.json`` into the tree of an archive, whose built book is the folder ``book``."""
    crate = ROCrate(version=VERSION)
    crate.metadata.extra_terms.update(TERMS)
    cited = yaml.safe_load((tree / "CITATION.cff").read_text(encoding="utf-8"))
    authors = _describe_root(crate, cited, built)
    for folder in sorted(path for path in tree.iterdir() if path.is_dir() and not path.name.startswith(".")):
        crate.add_dataset(folder, f"{folder.name}/", properties={"name": folder.name})
    for name in ("CITATION.cff", "LICENSE", "README.md", *CONTAINER):
        if (tree / name).is_file():
            part = {"description": "part of the container's recipe"} if name in CONTAINER else {}
            _add_file(crate, tree, tree / name, **part)
    crate.get("README.md")["about"] = crate.root_dataset
    files = {path.name: _add_file(crate, tree, path) for path in sorted((tree / "results").iterdir())}
    for name, file in files.items():
        if name.endswith(".nc"):
            _add_runs(crate, file, results.load(tree / file.id), name.removesuffix(".nc"))
        else:  # images of a map; which commit took them from the data set is not recorded
            slug = name.removesuffix("-images.npz")
            dolb = _add(crate, "#dolb", "SoftwareApplication", name="dolb", softwareVersion=cited["version"])
            _add_action(crate, f"#publish-{slug}", f"dolb publish {slug}", dolb, file, object=files[f"{slug}.nc"])
    _add_book(crate, tree, book, files, built, cited["version"])
    for action in crate.get_by_type("CreateAction"):
        action["agent"] = authors
        crate.root_dataset.append_to("mentions", action, compact=True)
    crate.metadata.write(tree)


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reads(notebook: Path) -> set[str]:
    """Return the names of the results files that a notebook asks for, by its code, which may call one `slug`."""
    cells = nbformat.read(notebook, as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    slugs = re.findall(r'(?:published(?:_or_none)?\(|^slug = )"([\w-]+)"', code, flags=re.MULTILINE)
    return {f"{slug}.nc" for slug in slugs} | {*re.findall(r'published_file\("([^"]+)"\)', code)}


def _describe_root(crate: ROCrate, cited: Mapping[str, Any], built: Built) -> Any:
    """Give the crate its title, authors, licence and profiles, and return the authors."""
    found = [_author(crate, one) for one in cited["authors"]]
    authors = found if len(found) > 1 else found[0]
    licence = _add(crate, f"https://spdx.org/licenses/{cited['license']}", "CreativeWork", name=cited["license"])
    profiles = [
        _add(crate, address, "CreativeWork", name=name, version=Path(address).name)
        for address, name in PROFILES.items()
    ]
    about = {"name": cited["title"], "description": cited["abstract"].strip(), "version": cited["version"]}
    about |= {"keywords": ", ".join(cited["keywords"]), "identifier": built.commit}
    about |= {"datePublished": built.committed, "license": licence, "conformsTo": profiles}
    about |= dict.fromkeys(("author", "creator", "publisher"), authors)
    for name, value in about.items():
        crate.root_dataset[name] = value
    return authors


def _author(crate: ROCrate, author: Mapping[str, str]) -> Any:
    """Return a person or a group as CITATION.cff has one."""
    person = "family-names" in author
    name = f"{author['given-names']} {author['family-names']}" if person else author["name"]
    address = author.get("orcid") or author.get("website") or "#" + _slug(name)
    return _add(crate, address, "Person" if person else "Organization", name=name)


def _add_file(crate: ROCrate, tree: Path, path: Path, **more: Any) -> Any:
    about = {"name": path.name, "contentSize": str(path.stat().st_size), "sha256": sha256(path)}
    about["encodingFormat"] = FORMATS.get(path.suffix, "text/plain")
    return crate.add_file(path, path.relative_to(tree).as_posix(), properties=about | more)


def _add_runs(crate: ROCrate, file: Any, ds: xr.Dataset, slug: str) -> None:
    """Add an action for the runs of a file that one commit made with one torch on one device.

    It begins with the first of them and ends with the last, where that was recorded of all.
    """
    by = ["dolb_version", "commit", "torch_version", "device", "source"]
    columns = {name: ds[name].to_numpy() for name in [*by, "data_fingerprint", "measured_at", *SPAN] if name in ds}
    columns["seconds"] = results.device_seconds(ds).to_numpy() if "concurrent_runs" in ds else np.zeros(ds.sizes["run"])
    for number, (key, runs) in enumerate(pd.DataFrame(columns).groupby(by)):
        version, commit, torch, device, source = map(str, key)
        inputs = {
            ("device", device),
            ("source", source),
            *(("data fingerprint", one) for one in runs["data_fingerprint"]),
        }
        values = [_value(crate, name, value) for name, value in sorted(inputs) if value]
        more: dict[str, Any] = {"description": f"{len(runs)} runs", "object": values}
        if "measured_at" in runs and max(runs["measured_at"]):
            more["endTime"] = max(runs["measured_at"])
        if {*SPAN} <= {*runs} and runs[[*SPAN]].notna().all(axis=None):
            first, last = (datetime.fromtimestamp(at, UTC) for at in (runs[SPAN[0]].min(), runs[SPAN[1]].max()))
            more |= {"startTime": first.isoformat(timespec="seconds"), "endTime": last.isoformat(timespec="seconds")}
        if seconds := runs["seconds"].sum():
            more["resourceUsage"] = _value(crate, "device seconds", f"{seconds:.0f}")
        about = {"name": "dolb", "softwareVersion": f"{version} ({commit})", "softwareRequirements": f"torch {torch}"}
        software = _add(crate, f"#dolb-{_slug(commit)}-torch-{_slug(torch)}", "SoftwareApplication", **about)
        _add_action(crate, f"#{slug}-{number}", _made_by(slug, device), software, file, **more)


def _made_by(slug: str, device: str) -> str:
    """Return the command that made the published results of a slug on a device."""
    gpu = "NVIDIA" in device
    programs = {"benchmarks": f"{'gpu' if gpu else 'cpu'}_step.py", "layer-times": "layer_times.py"}
    if slug in programs:
        return f"python benchmarks/{programs[slug]}"
    if device == "none: simulated":
        return f"dolb publish {slug}"
    return f"dolb sweep {slug} --scale paper" + (" --device cuda" if gpu else "")


def _add_book(crate: ROCrate, tree: Path, book: str, files: Mapping[str, Any], built: Built, version: str) -> None:
    """Add the workflow that builds the book, each notebook with its page, and what each reads."""
    python = crate.add(ComputerLanguage(crate, "#python", {"name": "Python", "url": "https://www.python.org/"}))
    workflow = crate.add_workflow(tree / WORKFLOW, WORKFLOW, main=True, lang=python, cls=ComputationalWorkflow)
    about = {"name": "Run the notebooks and build the book", "version": version, "sha256": sha256(tree / WORKFLOW)}
    for name, value in about.items():
        workflow[name] = value
    for page in sorted((tree / book / "notebooks").glob("*.html")):
        source = tree / "notebooks" / f"{page.stem}.ipynb"
        code = {"@type": ["File", "SoftwareSourceCode"], "version": version}
        notebook = _add_file(crate, tree, source, **code)
        workflow.append_to("hasPart", notebook, compact=True)
        called = f"papermill notebooks/{source.name} out.ipynb -p scale published"
        drawn = [files[name] for name in sorted(reads(source) & files.keys())]
        _add_action(crate, f"#page-{page.stem}", called, notebook, _add_file(crate, tree, page), object=drawn)
    every = list(files.values())
    times = {"startTime": built.began, "endTime": built.ended}
    _add_action(crate, "#book", "dolb book", workflow, crate.get(f"{book}/"), object=every, **times)
    if (verdicts := tree / book / "book" / "verdicts.html").exists():
        _add_action(crate, "#verdicts", "dolb pages", workflow, _add_file(crate, tree, verdicts), object=every)


def _add_action(crate: ROCrate, identifier: str, called: str, instrument: Any, made: Any, **more: Any) -> None:
    action = crate.add_action(instrument, identifier, result=made)
    for name, value in {"name": called, "description": called, **more}.items():
        action[name] = value


def _value(crate: ROCrate, name: str, value: str) -> Any:
    identifier = f"#{_slug(name)}-{hashlib.sha256(value.encode()).hexdigest()[:12]}"
    return _add(crate, identifier, "PropertyValue", name=name, value=value)


def _add(crate: ROCrate, identifier: str, kind: str, **about: Any) -> Any:
    """Return an entity that is no file, which is added at the first call."""
    return crate.get(identifier) or crate.add(ContextEntity(crate, identifier, properties={"@type": kind, **about}))


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
