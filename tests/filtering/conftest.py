"""What tests of filtering share: the digits."""

import pytest

from dolb import data


@pytest.fixture(scope="session")
def digits() -> data.ImageData:
    return data.load("digits")
