"""Options that several commands share."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import typer

from punctual_cli.session import Session

T = TypeVar("T")
DEFAULT_LIST_LIMIT = 100

Limit = Annotated[
    int,
    typer.Option("--limit", "-n", min=0, metavar="N", help="Maximum number of items. 0 lists all."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the ids, one per line.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Idempotency key. A repeated request with the same key has no further effect.",
        show_default=False,
    ),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Earliest time, such as -2h.", show_default=False),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="Latest time, exclusive.", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]


def fetch_up_to(
    session: Session, limit: int, fetch: Callable[[int | None], Iterable[T]]
) -> list[T]:
    """Return at most `limit` items, and print a note if there are more."""
    if limit == 0:
        return list(fetch(None))
    items = list(fetch(limit + 1))
    if len(items) > limit:
        session.screen.print_note(
            f"The list has more than {limit} items. Use --limit 0 to list all."
        )
    return items[:limit]


def option_values(chosen: Iterable[Any] | None) -> Any:
    """Return enumerated words as the client takes them."""
    return [str(value) for value in chosen] if chosen else None


def option_value(chosen: Any) -> Any:
    return None if chosen is None else str(chosen)
