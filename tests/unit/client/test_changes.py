"""The stream of changes: it drops repeats, waits as it is told, reconnects, and reports gaps."""

from itertools import islice

import pytest

from punctual.client.answers.changes import Change
from punctual.client.endpoints import changes
from punctual.client.errors import Unavailable
from punctual.client.wire import Answer
from tests.support.client.driver import NO_CONNECTION, StepDriver, answer_with


def a_page(cursor: str, *entries: tuple[str, int], gap: bool = False, poll: int = 0) -> Answer:
    listed = [
        {"kind": "run", "state_version": version, "job_id": "j", "run_id": run_id, "run": None}
        for run_id, version in entries
    ]
    body = {"changes": listed, "next_cursor": cursor, "gap": gap, "poll_seconds": poll}
    return answer_with(200, body)


def follow(driver: StepDriver, count: int, after: str | None = None) -> list[Change]:
    stream = driver.stream_items(changes.follow(driver.settings, after=after))
    return list(islice(stream, count))


def test_stream_drops_repeats_and_goes_on_from_each_cursor() -> None:
    driver = StepDriver(
        a_page("a", poll=3),
        a_page("b", ("r1", 1), ("r1", 2), ("r2", 2)),
        a_page("c", ("r1", 2), ("r1", 3)),
    )
    found = [(change.run_id, change.state_version) for change in follow(driver, 4)]
    assert found == [("r1", 1), ("r1", 2), ("r2", 2), ("r1", 3)]
    assert [dict(request.query) for request in driver.sent] == [
        {},
        {"after": "a", "wait_seconds": "20"},
        {"after": "b", "wait_seconds": "20"},
    ]
    assert driver.pauses == []
    assert driver.patience == [30, 50, 50]


def test_stream_waits_as_long_as_the_server_says() -> None:
    driver = StepDriver(
        a_page("b", poll=30), a_page("c", ("r1", 1), poll=3), a_page("d", ("r1", 2))
    )
    follow(driver, 2, after="a")
    assert driver.pauses == [30, 3]


def test_gap_is_reported_and_forgets_the_known_versions() -> None:
    driver = StepDriver(
        a_page("b", ("r1", 5)), a_page("c", gap=True), a_page("d", ("r1", 5)), a_page("e")
    )
    assert [change.kind for change in follow(driver, 3, after="a")] == ["run", "gap", "run"]


def test_lost_connection_is_made_again() -> None:
    driver = StepDriver(NO_CONNECTION, NO_CONNECTION, a_page("b", ("r1", 1)), attempts=1)
    assert len(follow(driver, 1, after="a")) == 1
    assert [dict(request.query)["after"] for request in driver.sent] == ["a"] * 3


def test_stream_gives_up_after_ten_minutes_without_an_answer() -> None:
    driver = StepDriver(*[NO_CONNECTION] * 1_000, attempts=1)
    with pytest.raises(Unavailable):
        follow(driver, 1, after="a")
    assert 600 < sum(driver.pauses) < 610


def test_known_versions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_KNOWN_VERSIONS", 3)
    known = changes._KnownVersions()
    for number in range(10):
        assert known.is_new(Change(kind="run", run_id=str(number), state_version=1))
        assert not known.is_new(Change(kind="run", run_id=str(number), state_version=1))
    assert len(known._versions) == 3
