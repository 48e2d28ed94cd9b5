"""Scripts of any sizes, queued, ended and cancelled in any order, share the node's memory."""

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from punctual.domain.job_state import JobState, Lane, Priority, Rules
from punctual.domain.run import RunStatus
from punctual.engine.ports.job_states import Swap
from punctual.node.limits import Admission
from punctual.node.run_queue import RunQueue
from punctual.node.script_memory import ScriptMemory
from punctual.node.sqlite.store import Store
from tests.support.builders import NOON, ManualClock, a_job_state, a_run, an_id
from tests.support.examples import examples

TOTAL_MB = 1_000
PLACES = 3  # of long runs at a time
SIZES_MB = (64, 200, 400, 500, 999, 1_000, 1_001)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("queue"),
            st.sampled_from(SIZES_MB),
            st.sampled_from(list(Priority)),
            st.sampled_from((0, 0, 1, 5)),
        ),
        st.tuples(st.sampled_from(("end", "cancel")), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.sampled_from((1, 3))),
    ),
    max_size=40,
)


class Script(NamedTuple):
    """A script that waits or runs. Scripts compare in the order in which they start."""

    priority: Priority
    due_seconds: float
    job_id: str
    size_mb: int

    @property
    def reserved_mb(self) -> int:
        return self.size_mb if self.size_mb <= TOTAL_MB else 0


class SmallNode:
    """A queue with few places and little memory. It is asked for runs only when it says so."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(NOON)
        self.store = Store.open(folder, self.clock)
        self.memory = ScriptMemory(TOTAL_MB)
        admission = Admission(None, self.clock, self.store.starts)
        self.queue = RunQueue(
            self.store.transaction(), self.store.job_states, admission, self.memory
        )
        self.states: dict[str, JobState] = {}
        self.queued: list[Script] = []
        self.running: list[Script] = []
        self.count = 0

    def act(self, kind: str, number: int, *more: int) -> None:
        if kind == "queue":
            self._queue(number, Priority(more[0]), more[1])
        elif kind == "wait":
            self.clock.advance(timedelta(seconds=number))
        elif kind == "end" and self.running:
            ended = self.running.pop(number % len(self.running))
            self.memory.release(ended.job_id, 1)
            self._update_next_at()
        elif kind == "cancel" and self.queued:
            cancelled = self.queued.pop(number % len(self.queued))
            self._put(replace(self.states[cancelled.job_id], runs=()))
        self._start_while_due()

    def _queue(self, size_mb: int, priority: Priority, delay_seconds: int) -> None:
        self.count += 1
        job_id, due_at = an_id(self.count), self.clock() + timedelta(seconds=delay_seconds)
        names = {"task_type": "script", "lane": Lane.LONG, "priority": priority}
        rules = Rules("1-body", NOON, **names, memory_mb=size_mb)  # type: ignore[arg-type]
        run = a_run(an_id(1_000 + self.count), due_at=due_at)
        self._put(a_job_state(job_id, rules={1: rules}, runs=(run,)))
        self.queued.append(Script(priority, (due_at - NOON).total_seconds(), job_id, size_mb))
        self._update_next_at()

    def _put(self, state: JobState) -> None:
        version = state.version if state.job_id in self.states else 0
        new_state = replace(state, version=version + 1, write_ids=(f"w{state.job_id}{version}",))
        self.states[state.job_id] = new_state
        assert self.store.job_states.swap([Swap(new_state, version)]) == [True]

    def _update_next_at(self) -> None:
        free_slots = [Lane.LONG.value] if len(self.running) < PLACES else []
        self.queue.update_next_at(free_slots, self.clock())

    def _start_while_due(self) -> None:
        for _ in range(20):
            next_at = self.queue.next_at()
            if len(self.running) == PLACES or next_at is None or next_at > self.clock():
                break
            self._start()
            self._update_next_at()
        else:
            raise AssertionError("the queue asks for a step again and again")
        self._check()

    def _start(self) -> None:
        free_places = PLACES - len(self.running)
        for message in self.queue.find_due(Lane.LONG, self.clock(), free_places):
            (script,) = [script for script in self.queued if script.job_id == message.job_id]
            self.queued.remove(script)
            self.running.append(script)
            state = self.states[message.job_id]
            runs = tuple(replace(run, status=RunStatus.RUNNING) for run in state.runs)
            self._put(replace(state, runs=runs))
            self.memory.reserve(message.job_id, 1, script.size_mb)
            self.memory.on_commit()

    def _check(self) -> None:
        """Check that the memory holds what runs, and that only what must wait waits."""
        used_mb = sum(script.reserved_mb for script in self.running)
        assert used_mb == self.memory.used_mb <= TOTAL_MB
        now = (self.clock() - NOON).total_seconds()
        due = sorted(script for script in self.queued if script.due_seconds <= now)
        if len(self.running) < PLACES:
            assert not due or due[0].reserved_mb > TOTAL_MB - used_mb
            shown = [
                script
                for script in due
                for state in [self.states[script.job_id]]
                if self.queue.waits_for_memory(state, state.runs[0], self.clock())
            ]
            assert shown == due
            assert self.queue.count_waiting_for_memory("acme", self.clock()) == len(due)


@settings(max_examples=examples(60))
@given(ACTIONS)
def test_scripts_never_reserve_more_than_the_total_and_all_of_them_end(
    actions: list[tuple[str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        node = SmallNode(Path(folder) / "data")
        for action in actions:
            node.act(*action)
        node.act("wait", 10)
        for _ in range(node.count):
            node.act("end", 0)
        assert (node.queued, node.running, node.memory.used_mb) == ([], [], 0)
        node.store.close()
