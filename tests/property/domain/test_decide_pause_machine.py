"""Random events with pauses that end by themselves. The rules hold after each step."""

from datetime import datetime

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from punctual.domain.decision import Verdict
from punctual.domain.events import Pause, Resume
from punctual.domain.job_state import JobStatus
from punctual.domain.operations.memory import remembers
from punctual.domain.operations.operation import MAX_SLICE_AGE
from tests.property.domain.test_decide_machine import DELAY_SECONDS, Machine
from tests.support.builders_jobs import seconds


class PauseMachine(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.acted_at: dict[str, datetime] = {}

    @rule(delay_seconds=st.sampled_from(DELAY_SECONDS), note=st.sampled_from(["", "a move"]))
    def pause_until_a_time(self, delay_seconds: float, note: str) -> None:
        """Pause the job up to a time, which may have passed at the decision."""
        self._twice(Pause(self.world.now + seconds(delay_seconds), note))

    @rule(operation_id=st.sampled_from(["a", "b", "c"]), is_pause=st.booleans())
    def act_by_an_operation(self, operation_id: str, is_pause: bool) -> None:
        """Pause or resume the job. A slice that is repeated within hours changes nothing."""
        operation_id = f"{operation_id}{is_pause}"
        event = Pause(operation_id=operation_id) if is_pause else Resume(None, operation_id)
        before, acted_at = self.world.state, self.acted_at.get(operation_id)
        is_remembered = remembers(before.operation_memory, operation_id)
        if acted_at is not None and self.world.now - acted_at <= MAX_SLICE_AGE:
            assert is_remembered
        decision = self.world.do(event)
        if is_remembered:
            assert decision.verdict is Verdict.OK
            assert decision.state.edition == before.edition
        elif decision.verdict is Verdict.OK:
            self.acted_at[operation_id] = self.world.now
            expected = JobStatus.PAUSED if is_pause else JobStatus.SCHEDULED
            assert decision.state.status in (expected, JobStatus.COMPLETED)

    @precondition(lambda self: self.world.state.pause is not None)
    @rule()
    def evaluate_at_the_end_of_the_pause(self) -> None:
        pause = self.world.state.pause
        assert pause is not None
        if pause.until is not None:
            self.world.now = max(self.world.now, pause.until)
            self.world.evaluate()
            assert self.world.state.pause is None


PauseMachine.TestCase.settings = Machine.TestCase.settings
TestDecideWithPauses = PauseMachine.TestCase
