"""Run one notebook with papermill, in a kernel of this interpreter, and pass it through the gate."""

import os
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from traitlets import default

from dolb.publishing.gate import INJECTED, GateError, check_notebook, first_unfinished
from dolb.publishing.parameters import check_parameters

_LONGEST = 75  # characters of the folder of sockets: their names may have a hundred


class _ThisInterpreter(AsyncKernelManager):
    """Start kernels with the running interpreter and this `dolb`, whatever kernelspecs the machine has installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
        # A session's name would say that the notebook is open in JupyterLab, whose own kernel may have started us.
        env = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "JPY_SESSION_NAME": ""}
        # Every shutdown begins with an interrupt, which a kernel that is not quite done calls an error.
        return KernelSpec(**get_kernel_dict(["--log-level=CRITICAL"]), env=env)

    # A port that was free when it was chosen may be another kernel's when this one opens it, and everyone on a shared
    # login node can reach it. Sockets that are files have neither fault.
    @default("transport")
    def _by_files(self) -> str:
        return "ipc"

    @default("ip")
    def _address(self) -> str:
        folder = tempfile.gettempdir()
        return f"{folder if len(folder) < _LONGEST else '/tmp'}/dolb-{uuid.uuid4().hex[:12]}"


class _Above:
    """Writes what cells say while they run, above papermill's bar where there is one."""

    def write(self, text: str) -> None:
        from tqdm.auto import tqdm

        tqdm.write(text, file=sys.stderr, end="")

    def flush(self) -> None:
        sys.stderr.flush()


def run_notebook(
    source: Path, target: Path, parameters: Mapping[str, Any], cwd: Path | None = None, progress: bool = True
) -> Path:
    """Run the notebook `source` with `parameters` and write it, executed and gated, to `target`.

    Parameters are checked before anything runs (ParameterError). A cell that raises, a kernel that dies or a cell
    that did not run is a GateError; `target` then holds what was executed so far. `cwd` defaults to the current folder.
    """
    check_parameters(source, parameters)
    import papermill  # takes most of a second, which a notebook that only draws should not pay

    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        papermill.execute_notebook(
            str(source),
            str(target),
            parameters=dict(parameters),
            kernel_name="python3",
            language="python",
            progress_bar=progress and sys.stderr.isatty(),
            stderr_file=_Above() if progress else None,  # what a long cell says of itself
            kernel_manager_class=_ThisInterpreter,
            # Not papermill's cwd argument: it changes the folder of this whole process, and notebooks run in threads.
            resources={"metadata": {"path": str(cwd or Path.cwd())}},
        )
    except papermill.PapermillExecutionError as error:
        first_line = str(error.source).strip().splitlines()[0]
        raise GateError(
            f"{source}: cell In [{error.exec_count}] (`{first_line}`) raised {error.ename}: {error.evalue}"
        ) from error
    except Exception as error:  # dead kernels and timeouts come as nbclient's, jupyter_client's or plain errors
        raise GateError(
            f"{source}: {type(error).__name__} at {first_unfinished(target)}: {error or 'no message'}"
        ) from error
    check_notebook(target, source)
    return target


def prepare_for_readers(path: Path, inputs: str) -> None:
    """Note of an executed notebook what it was made from, and remove what readers who download it have no use for.

    Papermill's own metadata names this machine's folders, and its cell of parameters is set-up, which does not show.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop("papermill", None)
    notebook.metadata["dolb"] = {"inputs": inputs}
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        if INJECTED in cell.metadata.get("tags", []):
            cell.metadata["tags"] = [INJECTED, "remove-cell"]
    nbformat.write(notebook, path)
