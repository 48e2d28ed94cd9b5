"""Read a list page by page."""

from collections.abc import Callable
from typing import Any, TypeVar

from punctual.client.call_steps import ClientSettings, Item, Stream, send_request
from punctual.client.errors import Misuse, Unexpected
from punctual.client.model import decode_json, required_field
from punctual.client.wire import Repeat, Request

T = TypeVar("T")

API_PAGE_SIZE = 200


def stream_pages(
    settings: ClientSettings,
    path: str,
    filters: tuple[tuple[str, str], ...],
    field: str,
    convert: Callable[[Any], T],
    limit: int | None,
) -> Stream[T]:
    """Yield all items of a list, or the first `limit` items."""
    if limit is not None and limit < 0:
        raise Misuse("limit must not be negative.")
    page_token, remaining = None, limit
    while remaining is None or remaining > 0:
        page_size = str(API_PAGE_SIZE if remaining is None else min(remaining, API_PAGE_SIZE))
        cursor_parameter = () if page_token is None else (("next_token", page_token),)
        request = Request(
            "GET", path, (*filters, ("limit", page_size), *cursor_parameter), repeat=Repeat.READS
        )
        value = decode_json((yield from send_request(settings, request)))
        for item in required_field(value, field)[:remaining]:
            yield Item(convert(item))
            remaining = None if remaining is None else remaining - 1
        next_page_token = value.get("next_token")
        if next_page_token is None:
            return
        if next_page_token == page_token:
            raise Unexpected(f"GET {path}: the server sent the same page twice.")
        page_token = next_page_token
