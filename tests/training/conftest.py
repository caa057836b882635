"""What tests of training share: one thread for their small networks, and a few digits."""

from collections.abc import Iterator

import numpy as np
import pytest

from dolb import data
from dolb.training import processes


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Two threads on cores that others use too wait for each other longer than these small networks compute."""
    with processes.one_thread():
        yield


@pytest.fixture(scope="session")
def digits() -> data.ImageData:
    """The first 200 training digits: three batches of 64 and a last one of 8."""
    return data.load("digits").subset(np.arange(1437) < 200, "first-200")
