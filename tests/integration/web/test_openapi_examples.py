"""The examples of the OpenAPI document are recorded from a node."""

from punctual.web.openapi.document import EXAMPLES_FILE
from tests.support.openapi_scene import text


def test_the_examples_are_what_the_node_answers() -> None:
    assert EXAMPLES_FILE.read_text() == text(), "run `make openapi`"
