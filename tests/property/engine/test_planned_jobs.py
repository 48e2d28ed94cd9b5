"""A new job whose time is to come is stored as `decide` would have it, without asking it."""

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
from tests.support.simulation.hand import NOON, TENANT, Hand

_AROUND = st.floats(-5, 100_000, allow_nan=False) | st.sampled_from([0, 0.000001, 1, 59.9, 60])
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
    _AROUND.map(lambda at: {"schedule_type": "FUTURE", "schedule_time": stamp(at)}),
    st.integers(1, 100_000).map(
        lambda every: {"schedule_type": "INTERVAL", "interval_seconds": every}
    ),
    st.tuples(st.integers(1, 900), _AROUND).map(
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
def test_a_planned_job_is_what_decide_would_make_of_it(
    schedule: dict[str, Any], limits: dict[str, Any]
) -> None:
    hand = Hand()
    (answer,) = hand.jobs.submit(
        TENANT, "someone", [Submission({"name": "job", **schedule, **limits})]
    )
    assert isinstance(answer, JobView)
    key = JobKey(TENANT, answer.state.job_id)
    stored = hand.memory.ports.job_states.load([key])[key].state
    assert stored == answer.state
    if stored.timer_at is None or stored.runs:
        assert stored.runs, "a job with nothing to come was fired"
        return
    begun = replace(stored, version=0, timer_at=None, write_ids=())
    decision = decide(begun, Evaluate(), NOON, stored.write_ids[-1])
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
    due = hand.memory.ports.timers.due(bucket, 0, at, None, 10)
    assert due.timers == [Timer(bucket, 0, at, *key, 1)]
