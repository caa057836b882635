"""What tests of communication share: a Horovod, and the traces recorded once."""

import gzip
from pathlib import Path

import pytest

from dolb.profiling.ranks import workers
from dolb.profiling.traces import trace

TRACES = Path(__file__).resolve().parent / "traces"


@pytest.fixture(scope="session")
def horovod(require_part):
    """A Horovod built for this torch; `make horovod` makes one."""
    try:
        workers.require_horovod()
    except workers.WorkerError as error:
        require_part("horovod", False, str(error))


@pytest.fixture(scope="session", params=["ddp", "horovod"])
def recorded(request):
    """The events of the traces of one library; reading needs no Horovod."""
    return trace.read(trace.find(TRACES / request.param))


@pytest.fixture
def unpacked(tmp_path):
    """Copy one recorded trace as plain text to where it can be damaged."""

    def copy(library, name):
        path = tmp_path / f"{name}.json"
        path.write_bytes(gzip.decompress((TRACES / library / f"{name}.json.gz").read_bytes()))
        return path

    return copy
