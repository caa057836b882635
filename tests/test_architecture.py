"""The arrows between the parts of dolb: who may import whom. CONTRIBUTING.md draws them; this file holds them."""

import ast
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dolb"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

LEAVES = {
    *("dolb.augment", "dolb.data", "dolb.config", "dolb.models", "dolb.names", "dolb.progress", "dolb.results"),
    *("dolb.training.schedule", "dolb.volumes"),
}
ROOMS = {"dolb.filtering", "dolb.training", "dolb.profiling"}
READERS = {"dolb.findings", "dolb.figures", "dolb.claims"}

# What each part may import from dolb besides itself; "dolb" stands for its version.
ARROWS = {
    "dolb": set(),
    **{leaf: set() for leaf in LEAVES},
    "dolb.names": {"dolb.config"},
    "dolb.models": {"dolb.names"},
    # A data set, and those that take a file of their own to find and verify; the rest of dolb sees `data` alone.
    "dolb.images": set(),
    "dolb.verified": {"dolb.images"},
    "dolb.cifar10": {"dolb.images", "dolb.verified"},
    "dolb.fashion_mnist": {"dolb.images", "dolb.verified"},
    "dolb.imagefolder": {"dolb.images", "dolb.progress"},
    "dolb.volumes": {"dolb.images"},
    "dolb.data": {"dolb.cifar10", "dolb.fashion_mnist", "dolb.imagefolder", "dolb.images", "dolb.volumes"},
    "dolb.results": {"dolb", "dolb.config", "dolb.progress"},
    # The fused step is the training room's own; it has a folder as it is written in another language.
    "dolb.kernels": {"dolb.augment", "dolb.models"},
    **{room: {"dolb", "dolb.kernels"} | LEAVES for room in ROOMS},
    "dolb.recipes": {"dolb.config", *(f"{room}.config" for room in ROOMS)},
    "dolb.maps": {"dolb.training", "dolb.filtering"} | LEAVES,
    # Data of one's own: the stages of `maps`, asked for by a person rather than a recipe; training is the study's.
    "dolb.own": {"dolb.maps", "dolb.recipes", "dolb.training", "dolb.filtering", "dolb.findings"} | LEAVES,
    # Faults planted in a data set, and `own` let loose on them.
    "dolb.planted": {"dolb.own", "dolb.images", "dolb.training", "dolb.filtering"} | LEAVES,
    # Which batch and rate suit such data: the recipe of `own`, searched and checked.
    "dolb.own_batch": {"dolb.own", "dolb.training", "dolb.findings"} | LEAVES,
    # What follows from results, and what is drawn of it: they read Datasets and tables, and know no room.
    "dolb.findings": {"dolb.results"},
    "dolb.figures": {"dolb.results"},
    "dolb.claims": {"dolb.results", "dolb.findings"},
    # Publishing knows no science; the pages of verdicts are made of what the claims return.
    "dolb.publishing": {"dolb", "dolb.results"},
    "dolb.publishing.pages": {"dolb.results", "dolb.claims", "dolb.publishing.panels"},
    "dolb.viewer": set(),
    # What commands do with a map: its page, the decisions made there as a mask, the images for the book.
    "dolb.map_pages": {"dolb.data", "dolb.filtering", "dolb.results", "dolb.findings", "dolb.viewer"},
    # What `dolb train` found, as a page.
    "dolb.train_page": {"dolb.own", "dolb.findings", "dolb.figures", "dolb.publishing"},
    # Sends the command line itself elsewhere, and reads the store to say how far it is.
    "dolb.cluster": {"dolb.config", "dolb.results"},
    # What a sweep of an experiment makes: the recipe's configs, by the room that each kind of them belongs to.
    "dolb.sweeps": {"dolb.recipes", "dolb.maps", "dolb.planted", "dolb.findings", *LEAVES, *ROOMS},
    "dolb.__main__": {"dolb.cli"},
    # The command line ties everything together, and nothing else imports it.
    "dolb.cli": {
        *(
            "dolb",
            "dolb.cluster",
            "dolb.maps",
            "dolb.map_pages",
            "dolb.own",
            "dolb.own_batch",
            "dolb.recipes",
            "dolb.publishing",
            "dolb.sweeps",
            "dolb.train_page",
        ),
        "dolb.viewer",
        *LEAVES,
        *ROOMS,
        *READERS,
    },
}


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_exists(name):
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def imports(path):
    """Every dolb module that a file imports, anywhere in it: at its top, inside a function, or for types alone."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports by dots, which hide an arrow"
            for alias in node.names:
                # `from dolb import data` imports a module; `from dolb import __version__` imports a name of one.
                module = f"{node.module}.{alias.name}"
                found.add(module if module_exists(module) else node.module)
    return {name for name in found if name.split(".")[0] == "dolb"}


def within(name, parts):
    """Whether a module is one of the parts or lies inside one; inside `dolb` says nothing, as everything does."""
    return any(name == part or (part != "dolb" and name.startswith(part + ".")) for part in parts)


def part_of(name):
    """The most specific part that a module belongs to, or None."""
    return max((part for part in ARROWS if within(name, [part])), key=len, default=None)


def forbidden(path):
    """The imports of a file that no arrow allows."""
    name = module_name(path)
    part = part_of(name)
    allowed = ARROWS[part] | ({part} if part != "dolb" else set())
    return {target for target in imports(path) if target != name and not within(target, allowed)}


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_imports_only_along_the_arrows(path):
    name = module_name(path)
    assert part_of(name), f"{name} is a new part of dolb: say in ARROWS, and in CONTRIBUTING.md, what it may import"
    assert not forbidden(path), f"{name} may import from dolb only {sorted(ARROWS[part_of(name)])}"


def test_modules_import_each_other_in_no_circle():
    names = {module_name(path): path for path in MODULES}
    waiting = {name: {target for target in imports(path) if target in names} - {name} for name, path in names.items()}
    # A package's own file comes first whatever it imports: what it exports is not what its modules are made of.
    waiting = {name: targets for name, targets in waiting.items() if names[name].name != "__init__.py"}
    while free := [name for name, targets in waiting.items() if not targets & waiting.keys()]:
        for name in free:
            del waiting[name]
    assert not waiting, f"these import each other: {sorted(waiting)}"


# --- Python returns numbers, tables and charts; people write the sentences -------------------------------------------

FEWEST_WORDS = 6
# Where sentences are wanted: the command line, and refusals, which are raised and not returned.
SPEAKING = {"dolb.cli", "dolb.publishing.gate", "dolb.publishing.parameters"}
FOR_THOSE_WHO_CANNOT_SEE = ("alt_text", "alternative")


def text_of(node):
    """The words of a string, of an f-string with a word for each of its values, or of strings that are added."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    if isinstance(node, ast.IfExp):
        return max(text_of(node.body), text_of(node.orelse), key=len)
    return ""


def is_sentence(text):
    return len(text.split()) >= FEWEST_WORDS and text.rstrip().endswith((".", "!", "?")) and "<" not in text


def returned(function):
    """The expressions that a function returns; of one that returns a name, what the name was last given too."""
    given = {
        node.targets[0].id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield given.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value


def speaking(tree):
    """The functions of a module that return a sentence."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        function.name
        for function in functions
        if not any(word in function.name for word in FOR_THOSE_WHO_CANNOT_SEE)
        and any(is_sentence(text_of(value)) for value in returned(function))
    ]


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_function_returns_a_sentence(path):
    source = path.read_text(encoding="utf-8")
    assert "in_words" not in source
    if module_name(path) not in SPEAKING:
        assert speaking(ast.parse(source)) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_reads_the_same_in_jupyterlab_which_fills_no_glue_in(path):
    cells = nbformat.read(path, as_version=4).cells
    assert not [cell.source for cell in cells if "{glue" in cell.source or "glue(" in cell.source]
