"""A play of clients that create, rename and cancel jobs. Each swap is checked for second names."""

from collections.abc import Callable
from typing import Any

from punctual.domain.errors import PunctualError
from punctual.domain.job_state import JobState
from punctual.engine.commands.idempotency import Submission
from punctual.engine.commands.job_names import held_name
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.job_names import NameKey
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.views import JobView
from tests.support.names.interleavings import Choose, Client, Play

TENANT = "acme"
Call = Callable[[Client], Any]


class Scene:
    """A play in which each swap of a job state is checked for a second job of a name."""

    def __init__(self, choose: Choose | None = None) -> None:
        self.play = Play() if choose is None else Play(choose)
        self._states = self.play.memory.job_states
        self._swap = self._states._swap
        self._states._swap = self._checked_swap  # type: ignore[method-assign]

    def _checked_swap(self, swap: Swap) -> bool:
        has_won = self._swap(swap)
        holders = self.holders()
        for name, job_ids in holders.items():
            assert len(job_ids) == 1, f"{name} belongs to {job_ids}"
            row = self.play.memory.job_names.rows.get(NameKey(TENANT, name))
            assert row is not None, f"{name} has no row"
            assert [row.job_id] == job_ids, f"the row of {name} is {row}"
        return has_won

    def holders(self) -> dict[str, list[str]]:
        """Return the jobs that have each name, by the definitions in force."""
        holders: dict[str, list[str]] = {}
        for stored in self._states.rows.values():
            name = self._name(stored.state)
            if name is not None:
                holders.setdefault(name, []).append(stored.state.job_id)
        return holders

    def _name(self, state: JobState) -> str | None:
        if state.is_blank:
            return None
        ref = (JobKey(TENANT, state.job_id), state.current_rules.definition_ref)
        definition = self._states.load_definitions([ref])[ref]
        return held_name(state.kind, state.status, definition.name)

    def walk(self) -> None:
        """Run the whole walk of the reconciler."""

        def call(client: Client) -> None:
            cursor: str | None = None
            for _ in range(100):
                page = client.reconciler.step(cursor)
                assert not page.restored_names
                assert not page.shared_names
                cursor = page.cursor
                if cursor is None:
                    return
            raise AssertionError("the walk does not end")

        assert self.play.alone(call) is None

    def check_end(self) -> None:
        """Check that each free name can be taken, and that the walk leaves no row of another."""
        for name in ("a", "b", "n"):
            if name not in self.holders():
                created = self.play.alone(create(name))
                assert isinstance(created, JobView), created
                self.play.alone(cancel(created.state.job_id))
        self.walk()
        rows = {row.name: row.job_id for row in self.play.memory.job_names.rows.values()}
        assert {name: [job_id] for name, job_id in rows.items()} == self.holders()

    def job(self, name: str, kind: str = "CRON") -> str:
        created = self.play.alone(create(name, kind))
        assert isinstance(created, JobView), created
        return created.state.job_id


def document(name: str, kind: str = "CRON") -> dict[str, Any]:
    schedules: dict[str, dict[str, Any]] = {
        "CRON": {"cron_expression": "0 9 * * *"},
        "INTERVAL": {"interval_seconds": 60},
        "FUTURE": {"schedule_time": "2026-03-03T12:00:00Z"},
    }
    return {"name": name, "schedule_type": kind, "task": {"type": "event"}, **schedules[kind]}


def create(name: str, kind: str = "CRON", key: str | None = None) -> Call:
    def call(client: Client) -> JobView:
        submission = Submission(document(name, kind), key, name)
        (answer,) = client.jobs.submit(TENANT, "tests", [submission])
        if isinstance(answer, PunctualError):
            raise answer
        return answer

    return call


def change(job_id: str, name: str, kind: str = "CRON") -> Call:
    return lambda client: client.jobs.change(TENANT, job_id, lambda _: document(name, kind))


def cancel(job_id: str) -> Call:
    return lambda client: client.jobs.cancel(TENANT, job_id)


def walk_names(client: Client) -> None:
    """Walk as the reconciler does while others create, rename and cancel."""
    cursor: str | None = None
    for _ in range(100):
        cursor = client.reconciler.step(cursor).cursor
        if cursor is None:
            return
