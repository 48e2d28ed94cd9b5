"""Random events with pauses that end by themselves. The rules hold after each step."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from punctual.domain.events import Pause
from tests.property.domain.test_decide_machine import DELAY_SECONDS, Machine
from tests.support.builders_jobs import seconds


class PauseMachine(Machine):
    @rule(delay_seconds=st.sampled_from(DELAY_SECONDS), note=st.sampled_from(["", "a move"]))
    def pause_until_a_time(self, delay_seconds: float, note: str) -> None:
        """Pause the job up to a time, which may have passed at the decision."""
        self._twice(Pause(self.world.now + seconds(delay_seconds), note))

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
