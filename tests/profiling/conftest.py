"""What tests of communication share: the libraries, and the traces recorded once."""

from pathlib import Path

import pytest

from dolb.profiling.ranks import links
from dolb.profiling.ranks.links import LinkError
from dolb.profiling.traces.read import find, read

TRACES = Path(__file__).resolve().parent / "traces"


@pytest.fixture(scope="module", params=["ddp", "horovod"])
def library(request):
    """Each library in turn; Horovod where it is built."""
    if request.param == "horovod":
        request.getfixturevalue("horovod")
    return request.param


@pytest.fixture(scope="session", params=["ddp", "horovod"])
def recorded(request):
    """The events of the traces of one library; reading needs no Horovod."""
    return read(find(TRACES / request.param))


@pytest.fixture(scope="module")
def machine(require_part):
    """A machine on which this process may make network namespaces, with veth, a bridge and tbf."""
    try:
        links.require()
    except LinkError as error:
        require_part("links", False, str(error))
