"""An external executor that is killed, frozen or cut off at each call: no run ends twice.

Each call by claim meets each fault at each call of a port. The executor repeats it, as its runner
does. An executor of the installation takes over the runs of an executor that fell silent.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from punctual.domain.errors import Unavailable
from punctual.domain.run import RunStatus
from punctual.engine.execution.claims import (
    ClaimFinish,
    ClaimLost,
    ClaimRenewal,
    Claims,
    ClaimStatus,
)
from punctual.engine.execution.executor import FinishedAttempt
from punctual.engine.ports.log import no_log
from punctual.engine.ports.rows import NO_DETAIL, RunKey, RunRow
from tests.support.claims.scene import ClaimsScene
from tests.support.ports import a_change_applier, an_executor
from tests.support.simulation.port_faults import Crash, Fault, Plan, fault_kinds, with_faults

OUTPUT = b"a,b\n1,2\n"
LOG = b"one\ntwo\nend\n"
RENEWAL_SECONDS = 4
MAX_REPEATS = 5
SILENT_SECONDS = 120  # longer than any lease
CALLS = 4  # of an external executor for one run


class Step(NamedTuple):
    """One call of the external executor, and whether it was answered OK."""

    call: Callable[[Claims], Any]
    is_ok: Callable[[Any], bool]


class Story:
    """One run that an external executor holds, and the installation around it."""

    def __init__(self, faults: Sequence[Fault] = (), **document: Any) -> None:
        self.scene = ClaimsScene()
        self.plan = Plan(tuple(faults))
        self.claim = self.scene.start_run(max_retries=0, **document)
        self.run_key = RunKey(*self.scene.identity(self.claim)[:3])
        self._rows: dict[RunKey, RunRow] = {}
        self._output_upload = ""

    def steps(self, runner_id: str = "one") -> list[Step]:
        return [
            Step(lambda claims: self._renew(claims, runner_id, b"one\n", 0), self._is_renewed),
            Step(lambda claims: self._renew(claims, runner_id, b"two\n", 4), self._is_renewed),
            Step(self._upload, bool),
            Step(lambda claims: self._finish(claims, runner_id), lambda answer: answer == ["OK"]),
        ]

    def _renew(self, claims: Claims, runner_id: str, log: bytes, offset: int) -> Any:
        self.scene.wait(RENEWAL_SECONDS)
        return claims.renew([ClaimRenewal(self.claim, runner_id, True, log, offset)])

    @staticmethod
    def _is_renewed(answers: Any) -> bool:
        return [answer.status for answer in answers] == [ClaimStatus.OK]

    def _upload(self, claims: Claims) -> Any:
        try:
            link = claims.upload(self.claim, len(OUTPUT), "text/csv")
        except ClaimLost:
            return False
        self.scene.world.memory.blobs.upload(link.url, OUTPUT)
        self._output_upload = link.output_upload
        return True

    def _finish(self, claims: Claims, runner_id: str) -> Any:
        end = ClaimFinish(
            self.claim,
            "SUCCESS",
            runner_id,
            output_upload=self._output_upload,
            log=b"end\n",
            log_offset=8,
        )
        return claims.finish([end])

    def take(self, step: Step) -> bool:
        """Make one call until it is answered. Return whether it was answered OK."""
        for _ in range(MAX_REPEATS):
            try:
                answer = step.call(self._server())
            except (Crash, Unavailable):
                self.check_rows()
                continue
            self.check_rows()
            return step.is_ok(answer)
        raise AssertionError("a call was never answered")

    def _server(self) -> Claims:
        """Return the calls by claim as a fresh process serves them."""
        world = self.scene.world
        ports = with_faults(self.scene.ports, self.plan, "claims")
        applier = a_change_applier(ports, world.clock, lambda: world.now.timestamp())
        return Claims(
            executor=an_executor(ports, applier, world.new_id, "claims-1"),
            job_states=ports.job_states,
            history=ports.history,
            blobs=ports.blobs,
            reader=self.scene.tokens,
            clock=world.clock,
            log=no_log,
        )

    def settle(self) -> None:
        """Let the installation evaluate timers and run what is queued."""
        self.plan.on = False
        for _ in range(SILENT_SECONDS // 10):
            self.scene.wait(10)
            self.scene.evaluate()
            for claimed in self.scene.claim_runs():
                run, status = claimed.run, RunStatus.SUCCESS
                end = FinishedAttempt(claimed.key, run.run_id, run.token, status, False, NO_DETAIL)
                self.scene.executor.finish([end])
            self.check_rows()
        self.plan.on = True

    def check_rows(self) -> None:
        """Check that a run that ended never ends again, nor otherwise."""
        rows = dict(self.scene.world.memory.history.rows)
        for key, row in self._rows.items():
            assert rows[key] == row, "the history of a run changed"
        self._rows = rows

    @property
    def row(self) -> RunRow:
        assert self.scene.live_run(self.claim) is None
        return self._rows[self.run_key]


def test_steady_executor_ends_its_run_with_output_and_log() -> None:
    story = Story()
    assert [story.take(step) for step in story.steps()] == [True] * CALLS
    story.settle()
    check_ended_outside(story)


def check_ended_outside(story: Story) -> None:
    assert (story.row.run.status, story.row.run.attempt) == (RunStatus.SUCCESS, 1)
    assert story.scene.blobs[story.row.detail.output_blob] == OUTPUT
    assert story.scene.log_text(story.claim) == LOG


def faults_of(**document: Any) -> list[Fault]:
    """Return each fault at each call of a port that the calls of one run cause."""
    story = Story(**document)
    for step in story.steps():
        story.take(step)
    return [
        Fault(number, kind, crash)
        for number, call in enumerate(story.plan.calls, 1)
        for kind, crash in fault_kinds(call)
    ]


def test_fault_at_any_port_call_loses_neither_run_nor_output() -> None:
    faults = faults_of()
    assert len(faults) > 60
    for fault in faults:
        story = Story([fault])
        assert [story.take(step) for step in story.steps()] == [True] * CALLS, fault
        story.settle()
        check_ended_outside(story)


class ReleasedStory(Story):
    """A hostile executor fills its upload and logs, then returns the run. Another one takes it."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        super().__init__(faults)
        self.plan.on = False
        self.first = self.claim
        self.link = self.scene.claims.upload(self.first, len(OUTPUT), "text/csv")
        self.scene.claims.renew([ClaimRenewal(self.first, "", False, b"of the first claim", 0)])
        self.fill()
        self.plan.on = True

    def fill(self) -> None:
        self.scene.world.memory.blobs.upload(self.link.url, b"x" * len(OUTPUT))

    def take_all(self) -> None:
        """Return the run by its first claim, then make all calls with the next one."""
        release = ClaimFinish(self.first, "RELEASED")
        assert self.take(
            Step(lambda claims: claims.finish([release]), lambda answer: answer == ["OK"])
        )
        self.plan.on = False
        while not (queued := self.scene.claim_runs()):  # a timer sends it, if the call could not
            self.scene.wait(1)
            self.scene.evaluate()
        (again,) = queued
        assert again.run.attempt == 1
        self.claim = self.scene.sign(again)
        self.plan.on = True
        for step in self.steps():
            assert self.take(step)
            self.fill()


def test_fault_at_any_call_leaves_a_released_run_to_its_next_claim() -> None:
    steady = ReleasedStory()
    steady.take_all()
    faults = [
        Fault(number, kind, crash)
        for number, call in enumerate(steady.plan.calls, 1)
        for kind, crash in fault_kinds(call)
    ]
    assert len(faults) > 60
    for fault in faults:
        story = ReleasedStory([fault])
        story.take_all()
        story.settle()
        check_ended_outside(story)


@pytest.mark.parametrize("answered_calls", range(CALLS))
def test_run_of_a_killed_executor_is_done_once_by_another_one(answered_calls: int) -> None:
    story = Story()
    for step in story.steps()[:answered_calls]:
        assert story.take(step)
    story.settle()
    assert (story.row.run.status, story.row.run.attempt) == (RunStatus.SUCCESS, 2)
    assert story.row.run.executor_id == "executor-1"


@pytest.mark.parametrize("answered_calls", range(CALLS))
def test_executor_that_was_frozen_changes_nothing_with_its_old_claim(answered_calls: int) -> None:
    story = Story()
    steps = story.steps()
    for step in steps[:answered_calls]:
        assert story.take(step)
    story.settle()
    ended, before = story.row, story.scene.snapshot()
    late = [story.take(step) for step in (*steps[answered_calls:], *steps)]
    assert late == [False] * len(late)
    assert story.scene.snapshot() == before
    story.settle()
    assert story.row == ended


def test_executor_cut_off_after_its_end_repeats_it_without_effect() -> None:
    story = Story()
    steps = story.steps()
    assert all(story.take(step) for step in steps)
    story.settle()
    ended, before = story.row, story.scene.snapshot()
    assert story.take(steps[-1]), "the same end again"
    assert [story.take(step) for step in steps[:-1]] == [False] * (CALLS - 1)
    assert (story.row, story.scene.snapshot()) == (ended, before)


def test_run_with_at_most_one_attempt_is_not_repeated_after_a_kill() -> None:
    story = Story(delivery="AT_MOST_ONCE")
    steps = story.steps()
    assert story.take(steps[0])
    story.settle()
    assert (story.row.run.status, story.row.run.attempt) == (RunStatus.FAILED, 1)
    assert [story.take(step) for step in steps] == [False] * CALLS
    story.settle()


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_event_that_arrives_twice_runs_in_one_runner(order: tuple[str, str]) -> None:
    story = Story()
    first, second = (story.steps(runner_id) for runner_id in order)
    assert story.take(first[0])
    assert not story.take(second[0])
    assert story.take(first[1])
    assert not story.take(second[3])
    assert story.take(first[2])
    assert story.take(first[3])
    assert not story.take(second[3])
    story.settle()
    check_ended_outside(story)
