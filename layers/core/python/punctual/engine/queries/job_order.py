"""The order of jobs in a list, as positions that cursors hold."""

from collections.abc import Iterable
from datetime import UTC, datetime

from punctual.domain.job_state import JobState
from punctual.domain.schedules.upcoming import next_run_at
from punctual.engine.ports.lists.job_index import JobSort, Position
from punctual.engine.queries.cursor import invalid_cursor

WITHOUT_NEXT_TIME = "none"  # the first part of a position; it sorts after every time
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%f"  # text in this format sorts as the times do


def position_of(sort: JobSort, state: JobState, name: str) -> Position:
    if sort is JobSort.CREATED:
        return (state.job_id,)
    if sort is JobSort.NAME:
        return (name, state.job_id)
    return next_run_position(next_run_at(state), state.job_id)


def next_run_position(at: datetime | None, job_id: str) -> Position:
    """Return the position of a job by its next time.

    >>> next_run_position(datetime(2026, 1, 1, tzinfo=UTC), "a")
    ('2026-01-01T00:00:00.000000', 'a')
    >>> next_run_position(None, "a")
    ('none', 'a')
    """
    return (WITHOUT_NEXT_TIME if at is None else at.strftime(_TIME_FORMAT), job_id)


def next_time_of(position: Position) -> datetime | None:
    """Return the time in a position by next time, or None. A client may have made it up."""
    if position[0] == WITHOUT_NEXT_TIME:
        return None
    try:
        return datetime.strptime(position[0], _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError as error:
        raise invalid_cursor() from error


def sort_positions(sort: JobSort, positions: Iterable[Position]) -> list[Position]:
    if sort is JobSort.CREATED:
        return sorted(positions, reverse=True)
    ascending = sorted(positions)
    if sort is JobSort.NAME:
        return ascending
    timed = [position for position in ascending if position[0] != WITHOUT_NEXT_TIME]
    return timed + ascending[len(timed) :][::-1]


def is_after(sort: JobSort, position: Position, cursor: Position | None) -> bool:
    """Return whether a job stands after the cursor.

    >>> is_after(JobSort.CREATED, ("a",), ("b",))
    True
    >>> is_after(JobSort.NAME, ("a", "2"), ("b", "1"))
    False
    """
    if cursor is None:
        return True
    if sort is JobSort.CREATED:
        return position < cursor
    if sort is JobSort.NEXT_RUN and position[0] == cursor[0] == WITHOUT_NEXT_TIME:
        return not cursor[1] or position < cursor
    return position > cursor
