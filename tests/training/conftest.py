"""What tests of training share: one thread for their small networks."""

from collections.abc import Iterator

import pytest

from dolb.training import processes


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Two threads on cores that others use too wait for each other longer than these small networks compute."""
    with processes.one_thread():
        yield
