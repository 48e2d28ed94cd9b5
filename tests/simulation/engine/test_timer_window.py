"""The timer window of a poller holds a page, and misses no timer put while it reads."""

from collections.abc import Sequence

from punctual.engine.dispatch.poller import TimerWindow
from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.timers import Timer
from tests.support.builders import NOON, a_timer, after, an_id
from tests.support.simulation.memory import MemoryTimers

PARTITION = TimerPartition(NOON, 0)
PAGE = 10


def drain(window: TimerWindow, store: MemoryTimers, limit: int = 3) -> list[Timer]:
    """Take, delete and forget a few timers at a time, as a poller does."""
    timers: list[Timer] = []
    window.fill()
    while batch := window.take(after(59), limit):
        timers += batch
        store.delete(batch)
        window.forget(batch)
        window.fill()
    return timers


def a_window(*put: Sequence[Timer]) -> tuple[TimerWindow, MemoryTimers]:
    store = MemoryTimers()
    for timers in put:
        store.put(timers)
    window = TimerWindow(store, PAGE)
    window.add_partition(PARTITION)
    window.fill()
    return window, store


def test_window_holds_a_page_and_reads_on_as_it_empties() -> None:
    timers = [a_timer(after(n % 7), an_id(n)) for n in range(100)]
    window, store = a_window(timers)
    assert len(window) == PAGE
    drained = drain(window, store)
    assert sorted(drained) == sorted(timers)
    assert [timer.at for timer in drained] == sorted(timer.at for timer in timers)


def test_timer_put_before_the_time_reached_needs_no_read() -> None:
    window, store = a_window([a_timer(after(5), an_id(n)) for n in range(100)])
    soon = a_timer(after(1), an_id(500))
    store.put([soon])
    window.add_timers([soon])
    assert window.next_timer_at() == soon.at
    assert window.take(after(1), 9) == [soon]


def test_timer_put_for_the_time_reached_is_found() -> None:
    """The timer may sort before the cursor, so no later page contains it."""
    timers = [a_timer(after(5), an_id(n)) for n in range(30)]
    window, store = a_window(timers)
    more = [a_timer(after(5), an_id(n)) for n in range(100, 150)]
    for timer in more:
        store.put([timer])
        window.add_timers([timer])
    assert len(window) == PAGE, "the window holds at most a page"
    assert sorted(drain(window, store)) == sorted([*timers, *more])


def test_timer_put_for_the_time_reached_is_taken_if_there_is_room() -> None:
    timers = [a_timer(after(5), an_id(n)) for n in range(30)]
    window, store = a_window(timers)
    first = window.take(after(59), 4)
    more = a_timer(after(5), an_id(100))
    store.put([more])
    window.add_timers([more])
    assert more in window.pending_timers()
    assert sorted([*first, *drain(window, store)]) == sorted([*timers, more])


def test_timer_added_twice_is_taken_once() -> None:
    timers = [a_timer(after(5), an_id(n)) for n in range(8)]
    window, store = a_window(timers)
    window.add_timers(timers)
    window.reread(PARTITION)
    assert sorted(drain(window, store, limit=100)) == sorted(timers)
