"""The arrows between the parts of dolb: who may import whom. CONTRIBUTING.md draws them; this file holds them."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dolb"
MOST_LINES = 400
VAGUE_NAMES = {"utils", "helpers", "common", "manager"}

LEAVES = {"dolb.augment", "dolb.data", "dolb.config", "dolb.models", "dolb.results", "dolb.training.schedule"}
ROOMS = {"dolb.filtering", "dolb.training", "dolb.profiling"}
CONFIGS = {f"{room}.config" for room in ROOMS}

# What follows from results, and what is drawn and written of it: they read Datasets and know no room. The first three
# have a module per experiment.
READERS = {
    "dolb.findings": {"dolb.findings", "dolb.results"},
    "dolb.figures": {"dolb.figures", "dolb.results"},
    "dolb.claims": {"dolb.claims", "dolb.results", "dolb.findings"},
    "dolb.publishing.pages": {"dolb.results", "dolb.claims", "dolb.findings"},
}

# What each part may import from dolb; "dolb" itself stands for its version. A room is free inside and imports leaves.
ARROWS = {
    "dolb": set(),
    **{leaf: set() for leaf in LEAVES},
    # A data set, and the one that takes a file of its own to find and verify; the rest of dolb sees `data` alone.
    "dolb.images": set(),
    "dolb.cifar10": {"dolb.images"},
    "dolb.data": {"dolb.cifar10", "dolb.images"},
    # How a file of results is written whole and found damaged; `results` alone uses it.
    "dolb.results.sealed": set(),
    # The names that results may have; the rest of dolb sees them through `results`.
    "dolb.results.schema": set(),
    "dolb.results": {"dolb", "dolb.results.sealed", "dolb.results.schema"},
    **{room: {"dolb", room} | LEAVES for room in ROOMS},
    "dolb.recipes": {"dolb.recipes"} | CONFIGS,
    # Maps and masks take training and filtering in turn, many times over: too long for a notebook, and resumed.
    # What of it takes long is a module of its own.
    "dolb.stages": {"dolb.training", "dolb.filtering"} | LEAVES,
    "dolb.maps": {"dolb.stages", "dolb.training", "dolb.filtering"} | LEAVES,
    **READERS,
    # Publishing is two modules and knows no science.
    "dolb.publishing.gate": set(),
    "dolb.publishing": {"dolb", "dolb.publishing.gate", "dolb.results"},
    # The viewer draws a Dataset of examples as a page; it knows no science and no other part.
    "dolb.viewer": {"dolb.viewer"},
    # What commands do with a map: its page, the decisions made there as a mask, the images for the book.
    "dolb.map_pages": {"dolb.data", "dolb.filtering", "dolb.results", "dolb.findings", "dolb.viewer"},
    # The command line ties everything together, and nothing imports it.
    "dolb.cli": {
        "dolb",
        *LEAVES,
        *ROOMS,
        "dolb.maps",
        "dolb.map_pages",
        "dolb.recipes",
        *READERS,
        "dolb.publishing.gate",
        "dolb.publishing",
        "dolb.viewer",
    },
}


def module_name(path, root=ROOT):
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_exists(name, root=ROOT):
    path = root.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def imports(path, root=ROOT):
    """Every dolb module that a file imports, anywhere in it: at its top, inside a function, or for types alone."""
    found = set()
    package = path.relative_to(root).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            base = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from dolb import data` imports a module; `from dolb import __version__` imports a name of one.
                module = f"{base}.{alias.name}"
                found.add(module if module_exists(module, root) else base)
    return {name for name in found if name.split(".")[0] == "dolb"}


def within(name, parts):
    """Whether a module is one of the parts or lies inside one; inside `dolb` says nothing, as everything does."""
    return any(name == part or (part != "dolb" and name.startswith(part + ".")) for part in parts)


def part_of(name):
    """The most specific part that a module belongs to, or None."""
    return max((part for part in ARROWS if within(name, [part])), key=len, default=None)


def forbidden(path, root=ROOT):
    """The imports of a file that no arrow allows."""
    name = module_name(path, root)
    allowed = ARROWS[part_of(name)]
    return {target for target in imports(path, root) if target != name and not within(target, allowed)}


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_imports_only_along_the_arrows(path):
    name = module_name(path)
    assert part_of(name), f"{name} is a new part of dolb: say in ARROWS, and in CONTRIBUTING.md, what it may import"
    assert not forbidden(path), f"{name} may import from dolb only {sorted(ARROWS[part_of(name)])}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_is_short_and_has_a_name_that_says_something(path):
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines < MOST_LINES
    assert path.stem not in VAGUE_NAMES
    assert path.parent.name not in VAGUE_NAMES


@pytest.fixture
def toy(tmp_path):
    """Write one module of a small dolb that has every part, and return its path."""

    def write(name, source):
        for part in ARROWS:
            folder = tmp_path.joinpath(*part.split("."))
            if part in ROOMS or part == "dolb":
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "__init__.py").touch()
            else:
                folder.parent.mkdir(parents=True, exist_ok=True)
                folder.with_suffix(".py").touch()
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.write_text(source)
        return path

    return write


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("dolb.data", "import dolb.models", "dolb.models"),
        ("dolb.cifar10", "from dolb.data import load", "dolb.data"),
        ("dolb.training.engine", "from dolb import cifar10", "dolb.cifar10"),
        ("dolb.models", "from dolb import __version__", "dolb"),
        ("dolb.results", "from dolb import data", "dolb.data"),
        ("dolb.training.schedule", "from dolb.training.engine import train", "dolb.training.engine"),
        ("dolb.filtering.noise", "from dolb import training", "dolb.training"),
        ("dolb.filtering.noise", "from ..profiling import trace", "dolb.profiling"),
        ("dolb.training.engine", "def run():\n    from dolb.filtering import noise", "dolb.filtering"),
        ("dolb.training.engine", "from dolb.recipes import recipe", "dolb.recipes"),
        ("dolb.figures", "from . import claims", "dolb.claims"),
        ("dolb.figures", "import dolb.training.config as c", "dolb.training.config"),
        ("dolb.claims", "from dolb.models import network", "dolb.models"),
        ("dolb.publishing", "from dolb.recipes import recipe", "dolb.recipes"),
        ("dolb.recipes", "from dolb.training.engine import train", "dolb.training.engine"),
    ],
)
def test_a_forbidden_import_is_found_however_it_is_written(toy, tmp_path, name, source, target):
    assert forbidden(toy(name, source), tmp_path) == {target}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("dolb.results", "from dolb import __version__"),
        ("dolb.training.engine", "from dolb import data, models\nfrom . import config, schedule"),
        ("dolb.profiling.simulator.scaling", "from dolb.training.schedule import steps"),
        ("dolb.recipes", "from dolb.training.config import RunConfig"),
        ("dolb.figures", "import altair\nfrom dolb import results"),
        ("dolb.cli", "from dolb import publish, recipes\nfrom dolb.training import sweep"),
    ],
)
def test_an_import_along_an_arrow_passes(toy, tmp_path, name, source):
    assert forbidden(toy(name, source), tmp_path) == set()
