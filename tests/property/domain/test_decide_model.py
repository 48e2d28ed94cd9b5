"""Compare `decide` with an independent model of QUEUE and SKIP."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.domain.decide import Verdict
from punctual.domain.events import Claim
from punctual.domain.identifiers import occurrence_id
from punctual.domain.job_state import MisfirePolicy, OverlapPolicy
from punctual.domain.run import Trigger
from tests.support.builders_jobs import JOB_ID, NOON, a_job, after, every
from tests.support.decide.decide_ledger import World
from tests.support.decide.decide_model import Model
from tests.support.examples import examples

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["fire"] * 4 + ["claim"] * 4 + ["end"] * 3 + ["order", "limit", "pause", "resume"]
        ),
        st.integers(0, 7),
    ),
    max_size=60,
)


class Pair:
    """A job and its model. Each event goes to both."""

    def __init__(self, overlap: OverlapPolicy, limit: int, max_waiting: int) -> None:
        job = a_job(
            every(10),
            overlap=overlap,
            max_concurrency=limit,
            max_waiting=max_waiting,
            misfire=MisfirePolicy.SKIP,
        )
        self.world = World(job, NOON)
        self.model = Model(limit, overlap is OverlapPolicy.SKIP, max_waiting)
        self.names: dict[str, str] = {}
        self.fired = self.ordered = 0

    def fire(self, _: int) -> None:
        self.fired += 1
        at = after(10 * self.fired)
        self.names[occurrence_id(JOB_ID, at)] = f"o{self.fired}"
        self.model.fire(f"o{self.fired}")
        self.world.now = at
        self.world.evaluate()

    def claim(self, pick: int) -> None:
        if not self.names:
            return
        run_id = sorted(self.names)[pick % len(self.names)]
        decision = self.world.do(Claim(run_id, "e", f"{len(self.world.trail)}"))
        assert (decision.verdict is Verdict.OK) == self.model.claim(self.names[run_id])

    def end(self, pick: int) -> None:
        held_runs = self.world.held
        if held_runs:
            run = held_runs[pick % len(held_runs)]
            self.world.finish(run)
            self.model.end(self.names[run.run_id])

    def order(self, _: int) -> None:
        self.ordered += 1
        name = f"p{self.ordered}"
        self.names[name] = name
        self.world.request_run(name)
        self.model.request_run(name)

    def limit(self, pick: int) -> None:
        self.world.change(max_concurrency=1 + pick % 3)
        self.model.set_limit(1 + pick % 3)

    def pause(self, _: int) -> None:
        self.world.pause()
        self.model.pause()

    def resume(self, _: int) -> None:
        self.world.resume()
        self.model.resume()

    def compare(self) -> None:
        state = self.world.state
        assert {self.names[run.run_id] for run in state.runs} == set(self.model.active)
        assert {self.names[run.run_id] for run in self.world.held} == self.model.held
        assert [self.names[waiting.run_id] for waiting in state.wait_queue] == self.model.wait_queue
        if not self.model.paused:
            assert self._skipped() == self.model.skipped
        self.world.check_ledger()

    def _skipped(self) -> set[str]:
        skipped = set()
        for run in self.world.ledger.values():
            if run.trigger is Trigger.SCHEDULE and run.status.value == "SKIPPED":
                for number in range(run.occurrence_count):
                    at = run.scheduled_at + number * timedelta(seconds=10)
                    skipped.add(self.names[occurrence_id(JOB_ID, at)])
        return skipped


@settings(max_examples=examples(150), deadline=None)
@given(
    overlap=st.sampled_from([OverlapPolicy.QUEUE, OverlapPolicy.SKIP]),
    limit=st.integers(1, 3),
    max_waiting=st.integers(1, 3),
    steps=STEPS,
)
def test_decide_agrees_with_the_model(
    overlap: OverlapPolicy, limit: int, max_waiting: int, steps: list[tuple[str, int]]
) -> None:
    pair = Pair(overlap, limit, max_waiting)
    for name, pick in steps:
        getattr(pair, name)(pick)
        pair.compare()
