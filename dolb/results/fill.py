"""The one loop that fills a store: find what is there, make what is lacking, mind the time, merge.

It may be killed and started again, stopped by a time limit, or run by several processes on one store: what is finished
is found by its key and never made twice. The store is all there is to it: on another machine, with the store copied
there in any state, the same call goes on.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import xarray as xr

from dolb import progress as shown
from dolb.config import Keyed
from dolb.results.files import scratch
from dolb.results.merging import merge
from dolb.results.store import RunStore

POLL_SECONDS = 0.5


C = TypeVar("C", bound=Keyed)


class Todo(Generic[C]):
    """What a store lacks, dealt out to whoever makes it, and the clock.

    ``waiting`` are the configs that nobody has made yet, in their order, and ``store`` is where they go.
    """

    def __init__(
        self, store: RunStore, fingerprint: Callable[[C], str | None], size: Callable[[C], float], deadline: float,
        foresee: bool,
    ):  # fmt: skip
        self.store, self.waiting = store, list[C]()
        self.found: dict[str, xr.Dataset] = {}
        self.unavailable: list[str] = []
        self.signals: list[int] = []
        self.bar = shown.bar(0, "", "", show=False)
        self._fingerprint, self._size, self._deadline, self._foresee = fingerprint, size, deadline, foresee
        self._held: dict[str, tuple[contextlib.ExitStack, float]] = {}  # claims, and when each was made
        self._counted: dict[str, float] = {}  # how much of what is begun stands on the bar
        self._longest = 0.0

    def ends(self) -> bool:
        """Whether time is up or the user wants to stop: leave off what is in hand if it can be taken up again."""
        return bool(self.signals) or time.monotonic() >= self._deadline

    def late(self) -> bool:
        """Whether nothing new should begin: also where it would not end in time, if the caller wants that foreseen."""
        return self.ends() or (self._foresee and time.monotonic() + self._longest >= self._deadline)

    def claim(self, configs: Iterable[C] | None = None, *, in_order: bool = False) -> Iterator[C]:
        """Yield those of ``configs``, by default of all that wait, that are for this process to make, one by one.

        What another process has made by now is taken from it. What another holds is left out, or, ``in_order``, ends
        this: those after it may need it.
        """
        for config in list(self.waiting if configs is None else configs):
            if self.late():
                return
            stack = contextlib.ExitStack()
            if not stack.enter_context(self.store.claim(config.key)):
                stack.close()
                if in_order:
                    return
                continue
            self.waiting.remove(config)
            if self.take(config):
                stack.close()
                continue
            self._held[config.key] = stack, time.monotonic()
            yield config

    def take(self, config: C) -> bool:
        """Take a result from the store; False where it is not there."""
        ds = self.store.get(config.key, self._fingerprint(config))
        if ds is not None:
            self.found[config.key] = ds
            self.done(config, self._size(config))
        return ds is not None

    def pass_over(self, config: C, reason: str) -> None:
        """Give up a claimed config that cannot be had here, such as one whose download fails; the result says so."""
        self.let_go(config.key)
        self.unavailable.append(reason)

    def done(self, config: C, amount: float, said: str = "") -> None:
        """Tell how much of a config's size is done."""
        self.bar.set_postfix_str(said, refresh=False)
        self.bar.update(amount - self._counted.get(config.key, 0))
        self._counted[config.key] = amount

    def save(self, ds: xr.Dataset, config: C) -> None:
        """Save a result that was made, and let go of its claim."""
        self.store.put(ds)
        self.found[config.key] = ds
        if config.key in self._held:
            self._longest = max(self._longest, time.monotonic() - self._held[config.key][1])
        self.done(config, self._size(config))
        self.let_go(config.key)
        for other in self.waiting:  # what further processes have made by now, so that the time left is right
            if self.store.path(other.key).exists():
                self.done(other, self._size(other))

    def let_go(self, *keys: str) -> None:
        """Give claims back, all unless some are named."""
        for key in keys or tuple(self._held):
            if key in self._held:
                self._held.pop(key)[0].close()


def fill(
    configs: Iterable[C],
    make: Callable[[Todo[C]], Iterable[xr.Dataset]],
    *,
    store: str | Path | None = None,
    fingerprint: Callable[[C], str | None] = lambda config: None,
    beside: Callable[[Sequence[C], RunStore], contextlib.AbstractContextManager] = lambda *_: contextlib.nullcontext(),
    time_limit: float | None = None,
    foresee: bool = False,
    gentle: bool = False,
    size: Callable[[C], float] = lambda config: 1,
    what: str = "runs",
    unit: str = "run",
    progress: bool = True,
) -> xr.Dataset:
    """Return the results of ``configs`` as one Dataset, making those that the store lacks.

    Parameters
    ----------
    make
        Given what is to do, takes configs by ``todo.claim()`` and yields one Dataset for each that it ends; each is
        saved as it comes. While other processes hold some, it is called again for what they leave.
    store
        Folder of finished results, by default the environment's ``DOLB_STORE``. Without one, results live only in the
        returned Dataset.
    fingerprint
        The data that a stored result must be of; one of other data, like one that does not read back, is set aside.
    beside
        Given what is lacking and the store, what to keep open while that is made, such as further processes.
    time_limit
        Seconds after which nothing new is begun. What is unfinished is counted in the Dataset's attribute
        ``unfinished``, and ``unavailable`` says what cannot be had; a later call goes on from there.
    foresee
        Begin nothing that would, by the longest so far, not end in time.
    gentle
        Let Ctrl-C and SIGTERM, which Slurm sends before it kills, wait until ``make`` has left off, as ``todo.ends()``
        tells it to. A second Ctrl-C acts at once; schedulers may send SIGTERM twice, before they kill.
    size
        How much of the progress bar a config is, in ``unit``.
    """
    wanted = {config.key: config for config in configs}
    if not wanted:
        raise ValueError(f"there are no {what} to make: the list of configs is empty")
    deadline = time.monotonic() + time_limit if time_limit is not None else float("inf")
    with contextlib.ExitStack() as stack:
        kept = store or os.environ.get("DOLB_STORE")
        said = f"what is done is kept in {kept}" if kept and progress else ""
        came = stack.enter_context(interrupts(gentle, said))
        folder = kept or stack.enter_context(scratch("dolb-runs-"))
        todo = Todo(RunStore(Path(folder).expanduser()), fingerprint, size, deadline, foresee)
        todo.signals = came
        todo.waiting = [config for config in wanted.values() if not todo.take(config)]
        if progress and todo.found:
            print(f"{len(todo.found)} of {len(wanted)} {what} are in {folder}", file=sys.stderr)
        if todo.waiting:
            todo.store.check_writable()
            stack.enter_context(beside(list(todo.waiting), todo.store))
            todo.bar = stack.enter_context(shown.bar(sum(map(size, todo.waiting)), what, unit, progress))
            _make_all(todo, make, wanted)
        for key in wanted.keys() - todo.found.keys():  # what others ended as time ran out
            todo.take(wanted[key])
    found, why = todo.found, "; ".join(dict.fromkeys(todo.unavailable))
    if not found:
        limit = "the time limit" if time_limit is not None else "this call"
        later = "a later call goes on" if kept else "with a store a later call would go on"
        raise TimeoutError(why or f"{limit} ended before any of {len(wanted)} {what} did; {later}")
    merged = merge(found[key] for key in wanted if key in found)
    merged.attrs |= {"unfinished": len(wanted) - len(found), "unavailable": why}
    return merged


def _make_all(todo: Todo[C], make: Callable[[Todo[C]], Iterable[xr.Dataset]], wanted: Mapping[str, C]) -> None:
    """Make what waits, leave to other processes what they hold, and take over what they leave."""
    try:
        while todo.waiting and not todo.late():
            before = len(todo.waiting)
            for ds in make(todo):
                todo.save(ds, wanted[str(ds["key"].item())])
            todo.let_go()
            if todo.waiting and len(todo.waiting) == before:
                time.sleep(POLL_SECONDS)  # others hold the rest
    finally:
        todo.let_go()


@contextlib.contextmanager
def interrupts(gentle: bool, kept: str) -> Iterator[list[int]]:
    """Note Ctrl-C and SIGTERM, which then take effect only after the block; a second Ctrl-C at once.

    After the block, as further processes end with it and have to save too. One that this process was told to ignore, as
    shells tell what scripts start in the background, stays ignored. ``kept`` is what to say of an interruption.
    """
    came = list[int]()

    def note(number: int, frame: object) -> None:
        came.append(number)
        if number == signal.SIGINT:
            signal.signal(number, before[number])

    here = gentle and threading.current_thread() is threading.main_thread()  # only there can signals be handled
    numbers = (signal.SIGINT, signal.SIGTERM) if here else ()
    heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, note) for number in heard}
    interrupted = False
    try:
        yield came
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if kept and (came or interrupted):
            print(f"interrupted: {kept}; the same command goes on from there", file=sys.stderr, flush=True)
    if came:
        signal.raise_signal(came[0])
