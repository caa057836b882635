"""What tests in every folder share: the repository's root, and parts of the machine that a test may need."""

import contextlib
import ctypes
import importlib.util
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from executed import held_to_one_core, without_links
from slurm import running_slurm as running_slurm
from waiting import cpu_seconds

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports Triton: its kernels then run on the CPU

# What a script starts in the background ignores Ctrl-C, and so would every program that a test starts and stops by it.
signal.signal(signal.SIGINT, signal.default_int_handler)

RequirePart = Callable[[str, bool, str], None]
# Of some demos tests run a part: one seed, a smaller network, fewer formats. What several seeds give is drawn of
# published results, and tests of storage write and read every format.
ONE_SEED = ("03-noise", "06-loss-landscape", "08-lr-scaling", "13-strong-weak", "15-data-pipeline", "18-own-data")
ONE_NETWORK = ("01-batch-size", "16-benchmarks", "17-recommend")
PART_OF_A_DEMO: dict[str, dict[str, list]] = {
    **{name: {"seeds": [0]} for name in ONE_SEED},
    **{name: {"archs": ["smallnet-4"]} for name in ONE_NETWORK},
}
PART_OF_A_DEMO["15-data-pipeline"]["formats"] = ["lmdb"]  # beside small files and the flat one
PART_OF_A_DEMO["16-benchmarks"]["batch_sizes"] = [8]
WITH_RANKS = ("13-strong-weak", "14-limits")  # demos that need a core for each of two


@pytest.fixture(scope="session")
def repo_root() -> Path:
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def vega(repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the scripts that draw charts: a book that finds it as `_build/vega` need not make its own."""
    spec = importlib.util.spec_from_file_location("dolb_pages", repo_root / "book" / "_ext" / "dolb_pages.py")
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    return pages.write_bundle(tmp_path_factory.mktemp("vega")).parent


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of what notebooks make at demo scale, where one finds what another has made."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def demo_epochs() -> int:
    """A third of the epochs of a demo: with them tests run the whole of its grid, and what is drawn is the same."""
    return 2


@pytest.fixture(scope="session")
def demo_seconds() -> dict[str, float]:
    """The processor's seconds that each notebook took of those that `demo` has run."""
    return {}


@pytest.fixture(scope="session")
def demo(
    repo_root: Path,
    demo_store: Path,
    demo_epochs: int,
    demo_seconds: dict[str, float],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Path]:
    """Run a notebook at demo scale, once for all tests that look at it, and return it executed."""
    from dolb import publishing  # late: a machine that is only to run tests of training may lack what it needs
    from dolb.publishing.parameters import read_parameters

    @cache
    def run(name: str) -> Path:
        folder, begun = tmp_path_factory.mktemp(name), cpu_seconds()
        source = repo_root / "notebooks" / f"{name}.ipynb"
        wanted = {"scale": "demo", "device": "cpu", "store": str(demo_store), "epochs": demo_epochs}
        given = {name: value for name, value in wanted.items() if name in read_parameters(source)}
        given |= PART_OF_A_DEMO.get(name, {})
        held = without_links() if name == "14-limits" else contextlib.nullcontext()
        with held, contextlib.nullcontext() if name in WITH_RANKS else held_to_one_core():
            made = publishing.run_notebook(source, folder / "out.ipynb", given, cwd=folder, progress=False)
        demo_seconds[name] = cpu_seconds() - begun
        return made

    return run


@pytest.fixture(scope="session")
def require_part() -> RequirePart:
    """Skip a test whose part (a browser, a GPU, a Slurm) is missing, or fail it where DOLB_REQUIRE lists that part.

    `DOLB_REQUIRE=browser,slurm` is for machines that are known to have the part: there a skip would hide a fault.
    """

    def require(part: str, available: bool, reason: str) -> None:
        if available:
            return
        required = {name.strip() for name in os.environ.get("DOLB_REQUIRE", "").split(",")}
        if part in required:
            pytest.fail(f"DOLB_REQUIRE lists {part!r}, but {reason}", pytrace=False)
        pytest.skip(f"{part}: {reason}")

    return require


@pytest.fixture(scope="session")
def horovod(require_part: RequirePart) -> None:
    """A Horovod built for this torch; `make horovod` makes one."""
    from dolb.profiling.ranks import launch  # late, as above

    try:
        launch.require_horovod()
    except launch.RankError as error:
        require_part("horovod", False, str(error))


@pytest.fixture(scope="session")
def in_javascript(require_part: RequirePart) -> Callable[[Path, str, list], list]:
    """Apply a function of what a script exports, its ``api``, in JavaScript to each of what is given."""
    node = shutil.which("node")
    require_part("node", node is not None, "node is not installed")

    def apply(script: Path, function: str, given: list) -> list:
        program = f"""
          const api = require({json.dumps(str(script))});
          console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(0, "utf8")).map({function})));
        """
        command, said = [node, "-e", program], json.dumps(given)
        done = subprocess.run(command, input=said, capture_output=True, text=True, check=True, timeout=60)
        return json.loads(done.stdout)

    return apply


@pytest.fixture(scope="module")
def on_one_core() -> Iterator[None]:
    """Short runs, one after another: a process more imports torch for longer, and threads of t-SNE wait by spinning."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dolb.training.processes.CORES", 1)
        patch.setenv("LOKY_MAX_CPU_COUNT", "1")
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a file's tests, where one finds what another has made."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def nothing_loaded_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read data sets anew, as a new process does."""
    monkeypatch.setattr("dolb.data._LOADED", {})


@pytest.fixture
def read_only() -> Callable[[Path], contextlib.AbstractContextManager]:
    """Make a folder and all in it read-only for a while, for root too."""

    @contextlib.contextmanager
    def hold(folder: Path) -> Iterator[None]:
        paths = [folder, *folder.rglob("*")]
        modes = [path.stat().st_mode for path in paths]
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode & ~0o222)
        try:
            with _bound_by_permission_bits():
                yield
        finally:
            for path, mode in zip(paths, modes, strict=True):
                path.chmod(mode)

    return hold


@contextlib.contextmanager
def _bound_by_permission_bits() -> Iterator[None]:
    """Give up, for a while, root's right to pass permission bits by (CAP_DAC_OVERRIDE); others never had it."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the interface, this thread
    rights = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 of each
    if libc.capget(header, rights):
        raise OSError(ctypes.get_errno(), "capget failed")
    before = rights[0]
    rights[0] = before & ~(1 << 1)
    libc.capset(header, rights)
    try:
        yield
    finally:
        rights[0] = before
        libc.capset(header, rights)
