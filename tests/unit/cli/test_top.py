"""The view of `punctual top`, and the lines of `punctual jobs watch`."""

import os
import pty
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from itertools import islice
from typing import Any

import pytest
from rich.console import Console

from punctual.client import Change, Run, Stats, Unavailable
from punctual.client.answers.changes import ChangedJob, ChangePage
from punctual.client.installation import Lateness, Minute
from punctual_cli.live import jobs_watch
from punctual_cli.live.top import _Top, keys_of_terminal
from punctual_cli.live.top_view import MAX_FAILED_RUNS, TopState, draw
from punctual_cli.profiles import TargetOptions
from punctual_cli.session import Session

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def a_run(run_id: str, status: str, **fields: Any) -> Run:
    values = {"job_id": "j", "job_name": f"job {run_id}", "start_time": NOW - timedelta(seconds=5)}
    return Run(run_id=run_id, status=status, **{**values, **fields})


def a_change(run_id: str, run: Run | None, version: int = 1) -> Change:
    return Change(kind="run", state_version=version, job_id="j", run_id=run_id, run=run)


def text_of(state: TopState, height: int = 24, width: int = 100) -> str:
    console = Console(file=StringIO(), width=width, height=height, highlight=False)
    console.print(draw(state, "http://node/v1", NOW, height, "q ends"))
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def test_changes_move_runs_between_the_tables() -> None:
    state = TopState()
    state.reset([a_run("a", "RUNNING"), a_run("b", "RUNNING")], [])
    ended = {"end_time": NOW, "error_message": "Exit code 3\nmore"}
    state.apply(a_change("a", a_run("a", "FAILED", **ended)))
    state.apply(a_change("b", None))
    state.apply(a_change("c", a_run("c", "RUNNING")))
    state.apply(a_change("d", a_run("d", "SUCCESS", end_time=NOW)))
    state.apply(Change(kind="job", job_id="j"))
    assert [run.run_id for run in state.live_runs(NOW)] == ["c"]
    assert [run.run_id for run in state.failed_runs()] == ["a"]
    text = text_of(state)
    assert "job c" in text
    assert "Exit code 3" in text
    assert "more" not in text


def test_longest_run_comes_first_and_the_queue_after_it() -> None:
    state = TopState()
    due = NOW - timedelta(seconds=9)
    state.reset(
        [
            a_run("queued", "QUEUED", start_time=None, due_time=due),
            a_run("ahead", "QUEUED", start_time=None, due_time=NOW + timedelta(seconds=1)),
            a_run("short", "RUNNING", start_time=NOW - timedelta(seconds=1)),
            a_run("long", "CLAIMED", start_time=NOW - timedelta(hours=1)),
        ],
        [],
    )
    assert [run.run_id for run in state.live_runs(NOW)] == ["long", "short", "queued"]


def test_failed_runs_are_bounded() -> None:
    state = TopState()
    for number in range(MAX_FAILED_RUNS + 5):
        run = a_run(str(number), "FAILED", end_time=NOW + timedelta(seconds=number))
        state.apply(a_change(str(number), run))
    failed = state.failed_runs()
    assert len(failed) == MAX_FAILED_RUNS
    assert failed[0].run_id == str(MAX_FAILED_RUNS + 4)


@pytest.mark.parametrize("height", [12, 24, 50])
def test_view_fits_into_the_terminal(height: int) -> None:
    state = TopState()
    live = [a_run(f"{number}", "RUNNING") for number in range(80)]
    failed = [a_run(f"f{number}", "FAILED", end_time=NOW) for number in range(30)]
    state.reset(live, failed)
    lines = text_of(state, height).splitlines()
    assert len(lines) <= max(height, 15)
    assert max(map(len, lines)) <= 100
    assert any("more" in line for line in lines)


def test_numbers_stand_above_the_tables() -> None:
    state = TopState()
    state.reset([a_run("a", "RUNNING")], [])
    minute = Minute(minute=NOW, started=3, succeeded=2, failed=1)
    lateness = Lateness(p50=18.0, p99=1_900.0, max=2_000.0)
    state.stats = Stats(lateness_ms=lateness, last_hour=(minute,))
    text = text_of(state, width=140)
    assert "1 running   0 queued" in text
    assert "18 ms p50  1.9 s p99" in text
    assert "2 succeeded  1 failed" in text


def test_text_of_a_server_writes_no_control_characters() -> None:
    state = TopState()
    state.reset([a_run("a", "RUNNING", job_name="x\x1b[2J")], [])
    assert "\x1b" not in text_of(state)


def test_q_ends_the_view_and_the_terminal_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        import termios

        before = termios.tcgetattr(terminal)
        with keys_of_terminal() as is_ended:
            assert not is_ended()
            os.write(controller, b"xq")
            assert is_ended()
        assert termios.tcgetattr(terminal) == before
    os.close(controller)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            Change(
                kind="job",
                job_id="j",
                at=NOW,
                job=ChangedJob(job_id="j", name="nightly", status="PAUSED"),
            ),
            "job  nightly  PAUSED",
        ),
        (Change(kind="job", job_id="j", at=NOW), "job  j  is forgotten"),
        (Change(kind="run", run_id="r", at=NOW, run=a_run("r", "QUEUED")), "run  job r  QUEUED"),
        (Change(kind="gap", at=NOW), "Some changes are missing. The live runs follow."),
    ],
)
def test_change_is_one_line(change: Change, expected: str) -> None:
    line = jobs_watch._line(Session(clock=lambda: NOW), change, {})
    assert line is not None
    assert line.plain[10:] == expected


class FakeClient:
    """A client. Its feed has a gap, and then ends with an error."""

    def __init__(self) -> None:
        self.runs = self
        self.listed = [[], [], [a_run("listed", "RUNNING")], []]

    def read_changes(self) -> ChangePage:
        return ChangePage(next_cursor="a")

    def list(self, *_args: Any, **_filters: Any) -> Any:
        return self.listed.pop(0)

    def stats(self) -> Stats:
        return Stats()

    def changes(self, after: str, **_filters: Any) -> Iterator[Change]:
        assert after == "a"
        yield Change(kind="gap")
        yield a_change("new", a_run("new", "RUNNING"))
        raise Unavailable("The server is gone.")


def a_session() -> Session:
    session = Session(target_options=TargetOptions("http://node/v1", "token"), clock=lambda: NOW)
    session.__dict__["client"] = FakeClient()
    return session


def update_until_error(shown: _Top) -> None:
    for _ in range(10):
        shown.update()


def test_view_reads_the_lists_again_after_a_gap_and_ends_with_the_error_of_the_feed() -> None:
    shown = _Top(a_session())
    shown.begin()
    shown.start()
    with pytest.raises(Unavailable):
        update_until_error(shown)
    assert [run.run_id for run in shown.state.live_runs(NOW)] == ["listed", "new"]


def test_watch_of_jobs_goes_on_with_the_live_runs_after_a_gap() -> None:
    session = a_session()
    session.client.runs.listed = [[a_run("listed", "RUNNING")]]  # type: ignore[attr-defined]
    session.client.changes = partial(FakeClient.changes, session.client, "a")  # type: ignore
    changes = jobs_watch._changes(session, None)
    shown = [(change.kind, change.run_id) for change in islice(changes, 3)]
    assert shown == [("gap", None), ("run", "listed"), ("run", "new")]


def test_run_that_was_taken_back_has_no_line() -> None:
    change = Change(kind="run", run_id="r", at=NOW)
    assert jobs_watch._line(Session(clock=lambda: NOW), change, {}) is None
