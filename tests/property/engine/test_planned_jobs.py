"""A new job with a future time is stored as `decide` would return it, without the call."""

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from punctual.domain.decide import decide
from punctual.domain.events import Evaluate
from punctual.domain.identifiers import bucket_of
from punctual.engine.commands.jobs import Submission
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer
from punctual.engine.queries.views import JobView
from tests.support.examples import examples
from tests.support.simulation.manual_engine import NOON, TENANT, ManualEngine

_OFFSETS = st.floats(-5, 100_000, allow_nan=False) | st.sampled_from([0, 0.000001, 1, 59.9, 60])
_LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "max_concurrency": st.integers(1, 3),
        "overlap_policy": st.sampled_from(["QUEUE", "SKIP", "REPLACE"]),
        "misfire_policy": st.sampled_from(["RUN_ONCE", "RUN_ALL", "SKIP"]),
        "misfire_grace_seconds": st.integers(0, 90),
        "deadline_seconds": st.integers(1, 90),
        "jitter_seconds": st.integers(0, 3_600),
    },
)


def stamp(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


_SCHEDULES = st.one_of(
    st.just({"schedule_type": "IMMEDIATE"}),
    _OFFSETS.map(lambda at: {"schedule_type": "FUTURE", "schedule_time": stamp(at)}),
    st.integers(1, 100_000).map(
        lambda every: {"schedule_type": "INTERVAL", "interval_seconds": every}
    ),
    st.tuples(st.integers(1, 900), _OFFSETS).map(
        lambda pair: {
            "schedule_type": "INTERVAL",
            "interval_seconds": pair[0],
            "interval_from": "COMPLETED",
            "start_time": stamp(pair[1]),
        }
    ),
    st.sampled_from(["* * * * *", "0 9 * * 1", "0 0 29 2 *"]).map(
        lambda text: {"schedule_type": "CRON", "cron_expression": text, "max_runs": 3}
    ),
)


@settings(max_examples=examples(300), deadline=None)
@given(schedule=_SCHEDULES, limits=_LIMITS)
def test_planned_job_equals_the_decision_of_decide(
    schedule: dict[str, Any], limits: dict[str, Any]
) -> None:
    engine = ManualEngine()
    (answer,) = engine.jobs.submit(
        TENANT, "caller", [Submission({"name": "job", **schedule, **limits})]
    )
    assert isinstance(answer, JobView)
    key = JobKey(TENANT, answer.state.job_id)
    stored = engine.memory.ports.job_states.load([key])[key].state
    assert stored == answer.state
    if stored.timer_at is None or stored.runs:
        assert stored.runs, "a job without a timer has a run"
        return
    new_state = replace(stored, version=0, timer_at=None, write_ids=())
    decision = decide(new_state, Evaluate(), NOON, stored.write_ids[-1])
    assert decision.state == stored
    assert (
        decision.runs_to_send,
        decision.runs_to_record,
        decision.run_ids_to_stop,
        decision.leases,
    ) == ((), (), (), {})
    at = stored.timer_at
    bucket = bucket_of(max(at, NOON + timedelta(seconds=1)))
    assert decision.timer_at == at
    due = engine.memory.ports.timers.due(bucket, 0, at, None, 10)
    assert due.timers == [Timer(bucket, 0, at, *key, 1)]
