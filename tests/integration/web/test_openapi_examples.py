"""The examples of the OpenAPI document are recorded from a node."""

from punctual.web.openapi.document import EXAMPLES_FILE
from tests.support.openapi_scene import text


def test_openapi_examples_equal_answers_of_the_node() -> None:
    assert EXAMPLES_FILE.read_text() == text(), "run `make openapi`"
