"""The stages that the tests of templates run over."""

import pytest

from tests.support.infra.synthesis import STAGES


@pytest.fixture(scope="module", params=STAGES)
def stage(request: pytest.FixtureRequest) -> str:
    return str(request.param)
