"""Show progress bars and spinners on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from punctual_cli.session import Session

if TYPE_CHECKING:
    from rich.text import Text

MIN_BAR_ITEMS = 20  # these finish before a bar would show


def _ignore(_done: Any) -> None:
    pass


@contextmanager
def bar(session: Session, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Draw a bar on standard error, and yield a function that advances it.

    `total` is None if the number of items is unknown.
    """
    if not session.screen.is_interactive or (total is not None and total < MIN_BAR_ITEMS):
        yield _ignore
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=session.screen.err, transient=True) as progress:
        task_id = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task_id, count)


def advance_to(advance: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function that takes the sum so far. A repeated upload does not move the bar back."""
    shown = 0

    def to(sent: int) -> None:
        nonlocal shown
        if sent > shown:
            advance(sent - shown)
            shown = sent

    return to


@contextmanager
def spinner(session: Session, title: str) -> Iterator[Callable[[Callable[[], str]], None]]:
    """Draw a spinner, and yield a function that changes its text.

    The text is a function, which the spinner calls each time it moves. So an elapsed time goes on.
    """
    if not session.screen.is_interactive:
        yield _ignore
        return
    from rich.text import Text

    with session.screen.err.status(Text(title)) as status:
        yield lambda text: status.update(_MovingText(text))


class _MovingText:
    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __rich__(self) -> "Text":
        from rich.text import Text

        return Text(self._text())
