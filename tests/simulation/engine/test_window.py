"""The window of a poller: it holds a page, and misses nothing that is put while it reads."""

from collections.abc import Sequence

from punctual.engine.dispatch.timer_window import TimerWindow
from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.timers import Timer
from tests.support.builders import NOON, a_timer, after, an_id
from tests.support.simulation.memory import MemoryTimers

PLACE = TimerPartition(NOON, 0)
PAGE = 10


def drained(window: TimerWindow, store: MemoryTimers, most: int = 3) -> list[Timer]:
    """Take, handle and forget a few at a time, as a poller does."""
    found: list[Timer] = []
    window.fill()
    while taken := window.take(after(59), most):
        found += taken
        store.delete(taken)
        window.forget(taken)
        window.fill()
    return found


def reading(*put: Sequence[Timer]) -> tuple[TimerWindow, MemoryTimers]:
    store = MemoryTimers()
    for some in put:
        store.put(some)
    window = TimerWindow(store, PAGE)
    window.add_partition(PLACE)
    window.fill()
    return window, store


def test_it_holds_about_a_page_and_reads_on_as_it_empties() -> None:
    timers = [a_timer(after(n % 7), an_id(n)) for n in range(100)]
    window, store = reading(timers)
    assert len(window) == PAGE
    found = drained(window, store)
    assert sorted(found) == sorted(timers)
    assert [timer.at for timer in found] == sorted(timer.at for timer in timers)


def test_what_is_put_before_the_moment_reached_needs_no_reading() -> None:
    window, store = reading([a_timer(after(5), an_id(n)) for n in range(100)])
    soon = a_timer(after(1), an_id(500))
    store.put([soon])
    window.add_timers([soon])
    assert window.next_timer_at() == soon.at
    assert window.take(after(1), 9) == [soon]


def test_what_is_put_for_the_moment_reached_is_found_wherever_it_stands() -> None:
    """It may stand before the place read up to, which no later page would bring."""
    timers = [a_timer(after(5), an_id(n)) for n in range(30)]
    window, store = reading(timers)
    more = [a_timer(after(5), an_id(n)) for n in range(100, 150)]
    for timer in more:
        store.put([timer])
        window.add_timers([timer])
    assert len(window) == PAGE, "however many they are, there is room for no more than a page"
    assert sorted(drained(window, store)) == sorted([*timers, *more])


def test_what_is_put_for_the_moment_reached_is_taken_where_there_is_room() -> None:
    timers = [a_timer(after(5), an_id(n)) for n in range(30)]
    window, store = reading(timers)
    first = window.take(after(59), 4)
    more = a_timer(after(5), an_id(100))
    store.put([more])
    window.add_timers([more])
    assert more in window.pending_timers()
    assert sorted([*first, *drained(window, store)]) == sorted([*timers, more])


def test_what_comes_twice_is_taken_once() -> None:
    timers = [a_timer(after(5), an_id(n)) for n in range(8)]
    window, store = reading(timers)
    window.add_timers(timers)
    window.reread(PLACE)
    assert sorted(drained(window, store, most=100)) == sorted(timers)
