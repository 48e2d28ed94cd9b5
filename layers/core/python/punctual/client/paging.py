"""Read a list page by page."""

from collections.abc import Callable
from typing import Any, TypeVar

from punctual.client.call_steps import Core, Give, Stream, ask
from punctual.client.errors import Misuse, Unexpected
from punctual.client.model import parsed, part
from punctual.client.wire import Repeat, Request

T = TypeVar("T")

PAGE = 200


def paged(
    core: Core,
    path: str,
    filters: tuple[tuple[str, str], ...],
    field: str,
    read: Callable[[Any], T],
    limit: int | None,
) -> Stream[T]:
    """Yield all items of a list, or the first `limit` items."""
    if limit is not None and limit < 0:
        raise Misuse("limit must not be negative.")
    token, left = None, limit
    while left is None or left > 0:
        page = str(PAGE if left is None else min(left, PAGE))
        place = () if token is None else (("next_token", token),)
        request = Request("GET", path, (*filters, ("limit", page), *place), repeat=Repeat.READS)
        value = parsed((yield from ask(core, request)))
        for found in part(value, field)[:left]:
            yield Give(read(found))
            left = None if left is None else left - 1
        following = value.get("next_token")
        if following is None:
            return
        if following == token:
            raise Unexpected(f"GET {path}: the server sent the same page twice.")
        token = following
