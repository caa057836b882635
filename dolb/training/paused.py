"""Runs that were stopped before their end: where each left off is kept beside the store, and it goes on from there.

A run that goes on ends with the same bits as one that was never stopped. It goes on only under what it was begun with:
the same code, torch, device and data; else it begins anew, so that a result has one origin.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
from pathlib import Path

import torch
from tqdm.auto import tqdm

from dolb.training.run import Run


class PausedRuns:
    """A folder with one file per paused run."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        """Return where the paused run of that key is, or would be."""
        return self.folder / f"{key}.pt"

    def keep(self, run: Run) -> None:
        """Keep where a run is whose steps were closed; a full disk costs the run's epochs, not the sweep."""
        target = self.path(run.config.key)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".paused.", delete=False) as handle:
                try:
                    torch.save(run.pause(), handle)
                    handle.flush()
                    os.replace(handle.name, target)
                except BaseException:
                    os.unlink(handle.name)
                    raise
        except (OSError, RuntimeError) as error:
            tqdm.write(f"notice: where the run {run.config.key} left off cannot be kept ({error}); it will begin anew")

    def resume(self, run: Run) -> bool:
        """Let a run go on from where one of its config was paused; False if it begins at its beginning."""
        path = self.path(run.config.key)
        try:
            went_on = run.resume(torch.load(path, map_location="cpu", weights_only=True))
        except FileNotFoundError:
            return False
        except (OSError, RuntimeError, EOFError, KeyError, pickle.UnpicklingError) as error:
            tqdm.write(f"notice: {path.name} cannot be read back ({error}); the run begins anew")
            return False
        if not went_on:
            tqdm.write(f"notice: {path.name} was paused under other code, torch, device or data; the run begins anew")
        return went_on

    def drop(self, key: str) -> None:
        """Forget a paused run, such as one that has ended."""
        with contextlib.suppress(FileNotFoundError):
            self.path(key).unlink()
