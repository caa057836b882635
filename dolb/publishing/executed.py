"""Notebooks executed into a store, which several processes may share: each takes the next one that the store lacks.

An executed notebook lies in a folder of its own, whose name has a hash of all that it was made from. So the store says
what is done, as it does of runs.
"""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dolb.publishing.book import digest, shared_inputs
from dolb.publishing.gate import GateError
from dolb.publishing.notebooks import run_notebook
from dolb.publishing.parameters import ParameterError, check_parameters, read_parameters
from dolb.results import RunStore

FOLDER = "notebooks"  # of a store
POLL_SECONDS = 0.5
T = TypeVar("T")


@dataclass(frozen=True)
class Order:
    """A notebook to be executed with parameters, and the name under which a store keeps it."""

    source: Path
    parameters: dict[str, Any]
    name: str

    def page(self, store: Path) -> Path:
        """Return where a store has it executed, or would have it."""
        return store / FOLDER / self.name / self.source.name


def orders(root: Path, sources: Sequence[Path], scale: str, parameters: Mapping[str, Any], store: Path) -> list[Order]:
    """Return what executes each notebook with those of the parameters that it has; one that none has is an error."""
    shared, names = shared_inputs(root), {source: read_parameters(source) for source in sources}
    if len(sources) == 1:
        check_parameters(sources[0], parameters)
    for name in parameters:
        if not any(name in accepted for accepted in names.values()):
            raise ParameterError(f"no notebook has a parameter {name!r}")
    found = []
    for source in sources:
        given = {"scale": scale, **{name: value for name, value in parameters.items() if name in names[source]}}
        check_parameters(source, given)
        key = digest(shared, source.read_bytes(), given)[:12]
        if "store" in names[source]:
            given.setdefault("store", str(store))
        found.append(Order(source, given, f"{source.stem}-{scale}-{key}"))
    return found


def execute(wanted: Sequence[Order], store: Path, say: Callable[[str], None] = lambda _: None) -> None:
    """Execute what the store lacks, one notebook after another; what others execute meanwhile is left to them.

    All are tried before the failures are raised, as one GateError. Ctrl-C and SIGTERM go to the notebook's kernel,
    where a sweep then saves what is unfinished, and act here after that.
    """
    waiting, failures = list(wanted), list[str]()
    runs = RunStore(store)
    runs.check_writable()
    with _told_to_kernels() as told:
        while waiting and not told:
            tried = len(waiting)
            for order in list(waiting):
                with runs.claim(order.name) as mine:
                    if not mine or told:
                        continue
                    waiting.remove(order)
                    if not order.page(store).exists():
                        failures += _aside(_execute, order, store)
                        if order.page(store).exists():
                            say(f"wrote {order.page(store)}")
            if len(waiting) == tried:
                time.sleep(POLL_SECONDS)  # others hold the rest
    if failures:
        raise GateError("\n".join([f"{len(failures)} of {len(wanted)} notebooks refused", *failures]))


def run_here(source: Path, target: Path, parameters: Mapping[str, Any]) -> None:
    """Run one notebook as `run_notebook` does; Ctrl-C and SIGTERM go to its kernel first, and act here after that."""
    with _told_to_kernels():
        _aside(run_notebook, source, target, parameters)


@contextlib.contextmanager
def _told_to_kernels() -> Iterator[list[int]]:
    """Give the signals that came, which kernels are told too; at the end the first of them acts here."""
    told = list[int]()

    def stop(number: int, frame: object) -> None:
        told.append(number)
        files = Path("/proc/self/task").glob("*/children")
        for kernel in [process for file in files for process in file.read_text().split()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(kernel), number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    except GateError:
        if not told:  # else it is of the cell that was interrupted
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if told:
        signal.raise_signal(told[0])


def _aside(call: Callable[..., T], *arguments: Any) -> T:
    """Call a function in another thread: there nbclient leaves signals alone, where it would kill the kernel soon."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *arguments).result()


def _execute(order: Order, store: Path) -> list[str]:
    """Execute a notebook in a folder that is given its name when the gate has let it pass; return what is refused."""
    folder = order.page(store).parent
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        run_notebook(order.source, partial / order.source.name, order.parameters, cwd=partial, progress=False)
    except GateError as error:
        return [str(error)]
    partial.rename(folder)
    return []
