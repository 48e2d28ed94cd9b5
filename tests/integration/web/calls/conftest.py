"""The client of the tests of calls."""

import pytest

from tests.support.web_client import Client


@pytest.fixture
def client() -> Client:
    return Client()
