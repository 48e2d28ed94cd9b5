"""Short stories of an installation, played with and without faults."""

from collections.abc import Callable

from punctual.domain.run import Reason, RunStatus, Trigger
from punctual.engine.execution.executor import Assignment
from tests.support.simulation.processes import Action, AttemptPlan, ReturnPlan
from tests.support.simulation.scenario import (
    SKEWS,
    Scenario,
    all_succeed,
    at,
    backfill,
    change,
    count,
    document,
    on_job,
    outcomes,
    run_now,
    run_with,
    submit,
    text,
)
from tests.support.simulation.world import Setup, World


def _fails_twice(assignment: Assignment) -> AttemptPlan:
    attempts = len(assignment.run.past_attempts.replace("L", ""))
    return AttemptPlan(
        status=(RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.SUCCESS)[min(attempts, 2)]
    )


def _crashes_first(assignment: Assignment) -> AttemptPlan:
    return AttemptPlan(6, crashes=True) if not assignment.run.past_attempts else AttemptPlan(2)


def _cancelled(world: World) -> None:
    assert count(world, RunStatus.CANCELLED) == 1, outcomes(world)


def _resumed_by_itself(world: World) -> None:
    states = [stored.state for stored in world.memory.job_states.rows.values()]
    assert [state.pause for state in states] == [None], outcomes(world)
    assert count(world, RunStatus.SUCCESS) >= 1, outcomes(world)


def _one_of_each_order(world: World) -> None:
    ordered = outcomes(world, Trigger.RUN_NOW)
    assert ordered == [("SUCCESS", "", 1)], f"one key, one run: {ordered}"


def _replaced(world: World) -> None:
    (stored,) = world.memory.job_states.rows.values()
    if world.plan.faults and stored.state.next_at is None and not stored.state.started_runs:
        # The request was repeated after a stall, when all times of the schedule had passed.
        assert (outcomes(world), stored.state.created_at > at(70)) == ([], True)
        return
    assert count(world, RunStatus.SUCCESS) >= 1, outcomes(world)
    if not world.plan.faults:  # an outage may leave one run only
        assert count(world, RunStatus.CANCELLED) >= 1, outcomes(world)


def _two_tenants(world: World) -> None:
    assert count(world, RunStatus.SUCCESS) == 4, outcomes(world)
    tenants = {key.tenant for key in world.memory.job_states.rows}
    assert tenants == {"acme", "umbrella"}
    assert {message.tenant for message in world.memory.run_queue.sent} == tenants


def _is_abandoned(world: World) -> None:
    assert outcomes(world) == [("FAILED", Reason.LOST.value, 1)], outcomes(world)


def _tried_once(world: World) -> None:
    assert max(world.invariants.begun.values()) == 1, "AT_MOST_ONCE: no attempt after a claim"
    assert outcomes(world) == [("FAILED", Reason.LOST.value, 1)], outcomes(world)


def _at_most_two(world: World) -> None:
    min_runs = (
        0 if world.plan.faults else 2
    )  # an outage leaves the latest run, and a slow client none
    assert min_runs <= count(world, RunStatus.SUCCESS) <= 2, outcomes(world)


def _all_run(world: World) -> None:
    results = outcomes(world)
    assert set(results) <= {("SUCCESS", "", 1)}, results
    assert world.plan.faults or len(results) == 4, results


def _only_the_latest(world: World) -> None:
    results = outcomes(world)
    assert results[-1:] == [("SUCCESS", "", 1)] or world.plan.faults, results
    assert world.plan.faults or results[:-1] == [("SKIPPED", "COALESCED", 2)], results


def _has_notifications(world: World) -> None:
    """Check that notifications exist. The invariants check their recipients."""
    assert world.memory.notifications.rows, outcomes(world)


def _backfilled_once(world: World) -> None:
    done = outcomes(world, Trigger.BACKFILL)
    assert done == [("SUCCESS", "", 1)] * 3, f"each time of the range once: {done}"


def _ran(*expected: tuple[float, str]) -> Callable[[World], None]:
    """Return a check of the occurrences and their outcomes, by seconds after the start."""

    def check(world: World) -> None:
        if world.plan.faults or world.setup.wake_ups_lost:
            return  # an outage may leave only the latest run, and the invariants check its reason
        runs = [run for run in world.invariants.ended.values() if run.trigger is Trigger.SCHEDULE]
        results = sorted(
            (round((run.scheduled_at - at(0)).total_seconds()), run.reason or run.status)
            for run in runs
        )
        assert results == sorted(expected), results

    return check


def _returns_run(assignment: Assignment) -> AttemptPlan:
    """Return a run before it begins, then with a wait, then after it began, and then succeed."""
    backs = (ReturnPlan(), ReturnPlan(waits=True), ReturnPlan(begun=True))
    number = assignment.run.return_count + len(assignment.run.past_attempts)
    return AttemptPlan(2, back=backs[number]) if number < len(backs) else AttemptPlan(2)


def _with_its_payload(assignment: Assignment) -> AttemptPlan:
    ordered = assignment.run.trigger is Trigger.RUN_NOW
    assert assignment.payload == (OTHER if ordered else LARGE), (
        "the payload differs from the given one"
    )
    return AttemptPlan()


def _is_repaired(world: World) -> None:
    if not world.plan.faults:  # under faults the job may be over, or have no timer yet
        assert world.repaired_jobs, "the reconciler repaired nothing, although every timer was lost"


LARGE, OTHER = "x" * 9_000, "y" * 9_000  # more than a row holds
CRON = document(schedule_type="CRON", cron_expression="* * * * *", end_time=text(at(200)))
TWENTY = document(schedule_type="INTERVAL", interval_seconds=20, end_time=text(at(90)))
OUTAGE = (0.0, 250.0)
HOOKS = [
    {"on": ["FAILED", "TIMED_OUT", "MISSED"], "url": "https://a.example"},
    {"on": ["SUCCESS", "CANCELLED"], "url": "https://b.example"},
    {"on": ["TIMED_OUT", "SKIPPED", "MISSED"], "url": "https://c.example"},
]
SKIPPED = {"misfire_policy": "SKIP", "misfire_grace_seconds": 10}

SCENARIOS = [
    Scenario("one-shot now", [Action(1, "submit", submit("k", document()))], check=all_succeed(1)),
    Scenario(
        "future",
        [
            Action(
                1,
                "submit",
                submit("k", document(schedule_type="FUTURE", in_seconds=74.5)),
            )
        ],
        check=all_succeed(1),
    ),
    Scenario("cron", [Action(1, "submit", submit("k", CRON))]),
    Scenario(
        "interval from completion",
        [Action(1, "submit", submit("k", {**TWENTY, "interval_from": "COMPLETED"}))],
    ),
    Scenario(
        "retries",
        [Action(1, "submit", submit("k", document(retry={"backoff_seconds": 8, "jitter": True})))],
        attempt_plan=_fails_twice,
        check=all_succeed(1),
    ),
    Scenario(
        "webhooks",
        [
            Action(1, "submit", submit("k", {**CRON, "notify": HOOKS, "max_retries": 1})),
            Action(25, "first", run_now("once")),
            Action(100, "cancel", on_job("cancel")),
        ],
        attempt_plan=_fails_twice,
        check=_has_notifications,
    ),
    Scenario(
        "webhooks of what did not run",
        [Action(1, "submit", submit("k", {**CRON, "notify": HOOKS, **SKIPPED}))],
        setup=Setup(skews=SKEWS, no_ticks=OUTAGE),
        check=_has_notifications,
    ),
    Scenario(
        "lost executor",
        [Action(1, "submit", submit("k", document()))],
        attempt_plan=_crashes_first,
        check=all_succeed(1),
    ),
    Scenario(
        "cancel while running",
        [
            Action(1, "submit", submit("k", document())),
            Action(12, "cancel", on_job("cancel")),
        ],
        attempt_plan=lambda _: AttemptPlan(400),
        check=_cancelled,
    ),
    Scenario(
        "pause and resume",
        [
            Action(1, "submit", submit("k", CRON)),
            Action(30, "pause", on_job("pause")),
            Action(110, "resume", on_job("resume")),
        ],
    ),
    Scenario(
        "pause until a time",
        [
            Action(1, "submit", submit("k", CRON)),
            Action(30, "pause", on_job("pause", None, None, at(70), "a move")),
            Action(50, "pause for longer", on_job("pause", None, None, at(110), "a long move")),
        ],
        check=_resumed_by_itself,
    ),
    Scenario(
        "change of schedule",
        [
            Action(1, "submit", submit("k", CRON)),
            Action(
                65,
                "change",
                change(schedule_type="INTERVAL", interval_seconds=25, cron_expression=None),
            ),
        ],
    ),
    Scenario(
        "run now, twice with one key",
        [
            Action(1, "submit", submit("k", CRON)),
            Action(25, "first", run_now("once")),
            Action(40, "again", run_now("once")),
            Action(110, "late", run_now("once")),
        ],
        check=_one_of_each_order,
    ),
    Scenario(
        "replace",
        [Action(1, "submit", submit("k", {**TWENTY, "overlap_policy": "REPLACE"}))],
        attempt_plan=lambda _: AttemptPlan(33),
        check=_replaced,
    ),
    Scenario(
        "queue with two holders",
        [Action(1, "submit", submit("k", {**TWENTY, "max_concurrency": 2}))],
        attempt_plan=lambda _: AttemptPlan(45),
    ),
    Scenario(
        "outage, run all",
        [
            Action(
                1,
                "submit",
                submit(
                    "k",
                    {**TWENTY, "misfire_policy": "RUN_ALL", "misfire_grace_seconds": 10},
                ),
            )
        ],
        check=_all_run,
        setup=Setup(skews=SKEWS, no_ticks=OUTAGE),
    ),
    Scenario(
        "outage, run once",
        [Action(1, "submit", submit("k", {**CRON, "misfire_grace_seconds": 10}))],
        check=_only_the_latest,
        setup=Setup(skews=SKEWS, no_ticks=OUTAGE),
    ),
    Scenario(
        "shards grow",
        [Action(1, "submit", submit("k", TWENTY, {**TWENTY, "interval_seconds": 35}))],
        events=[(45, lambda world: world.memory.partitions.raise_shard_count(4))],
    ),
    Scenario(
        "two tenants at one moment",
        [
            Action(
                1,
                "submit",
                submit(
                    "k",
                    *[document(schedule_type="FUTURE", in_seconds=19)] * 3,
                ),
            ),
            Action(2, "other", submit("k", document(), tenant="umbrella")),
        ],
        check=_two_tenants,
    ),
    Scenario(
        "every executor dies",
        [Action(1, "submit", submit("k", document()))],
        attempt_plan=lambda _: AttemptPlan(2, crashes=True),
        check=_is_abandoned,
    ),
    Scenario(
        "at most once, and the executor dies",
        [Action(1, "submit", submit("k", document(delivery="AT_MOST_ONCE")))],
        attempt_plan=lambda _: AttemptPlan(6, crashes=True),
        check=_tried_once,
    ),
    Scenario(
        "short runs in line",
        [
            Action(
                1,
                "submit",
                submit(
                    "k",
                    document(schedule_type="INTERVAL", interval_seconds=3, end_time=text(at(14))),
                ),
            )
        ],
        attempt_plan=lambda _: AttemptPlan(3.5),
    ),
    Scenario(
        "deadline in line",
        [Action(1, "submit", submit("k", {**TWENTY, "deadline_seconds": 9}))],
        attempt_plan=lambda _: AttemptPlan(33),
    ),
    Scenario(
        "two runs at most",
        [Action(1, "submit", submit("k", {**TWENTY, "max_runs": 2}))],
        check=_at_most_two,
    ),
    Scenario(
        "change to a single time",
        [
            Action(1, "submit", submit("k", CRON)),
            Action(
                50,
                "change",
                change(schedule_type="FUTURE", in_seconds=40, cron_expression=None, end_time=None),
            ),
        ],
    ),
    Scenario(
        "two clients at once",
        [
            Action(1, "submit", submit("k", CRON)),
            Action(25, "pause", on_job("pause")),
            Action(45, "resume", on_job("resume")),
            Action(100, "now", run_now("a")),
        ],
        others=[
            Action(25, "change", change(payload={"n": 1})),
            Action(45, "now too", run_now("b")),
            Action(100, "cancel", on_job("cancel")),
        ],
    ),
    Scenario(
        "backfill",
        [
            Action(
                1,
                "submit",
                submit("k", {**CRON, "end_time": text(at(30)), "max_concurrency": 2}),
            ),
            Action(3, "backfill", backfill(at(-200), at(-20))),
        ],
        check=_backfilled_once,
    ),
    Scenario(
        "jitter, and a change of schedule",
        [
            Action(1, "submit", submit("k", {**CRON, "jitter_seconds": 40})),
            Action(
                85,
                "change",
                change(schedule_type="INTERVAL", interval_seconds=25, cron_expression=None),
            ),
        ],
    ),
    Scenario(
        "overlap, skip",
        [Action(1, "submit", submit("k", {**TWENTY, "overlap_policy": "SKIP"}))],
        attempt_plan=lambda _: AttemptPlan(33),
        check=_ran((21, "SUCCESS"), (41, "OVERLAP"), (61, "SUCCESS"), (81, "OVERLAP")),
    ),
    Scenario(
        "two in line at most",
        [
            Action(
                1,
                "submit",
                submit(
                    "k",
                    {**TWENTY, "interval_seconds": 10, "max_waiting": 2, "end_time": text(at(80))},
                ),
            )
        ],
        attempt_plan=lambda _: AttemptPlan(27),
        check=_ran(
            *[(second, "SUCCESS") for second in (11, 21, 31, 41, 71)],
            *[(second, "QUEUE_FULL") for second in (51, 61)],
        ),
    ),
    Scenario(
        "more runs than at first",
        [
            Action(1, "submit", submit("k", {**TWENTY, "max_runs": 1})),
            Action(50, "change", change(max_runs=3)),
        ],
        check=_ran((21, "SUCCESS"), (61, "SUCCESS"), (81, "SUCCESS")),
    ),
    Scenario(
        "from a start to an end, both included or not",
        [
            Action(
                1,
                "submit",
                submit("k", {**TWENTY, "start_time": text(at(20)), "end_time": text(at(80))}),
            )
        ],
        check=_ran((20, "SUCCESS"), (40, "SUCCESS"), (60, "SUCCESS")),
    ),
    Scenario(
        "given back",
        [Action(1, "submit", submit("k", document()))],
        attempt_plan=_returns_run,
        check=all_succeed(1),
    ),
    Scenario(
        "given back without an end",
        [Action(1, "submit", submit("k", document()))],
        attempt_plan=lambda _: AttemptPlan(0.5, back=ReturnPlan()),
        check=_is_abandoned,
    ),
    Scenario(
        "payloads beside the row",
        [
            Action(1, "submit", submit("k", {**TWENTY, "payload": LARGE})),
            Action(30, "now", run_with(OTHER)),
        ],
        attempt_plan=_with_its_payload,
    ),
    Scenario(
        "one key by two clients at once",
        [Action(1, "submit", submit("k", CRON)), Action(25, "one", run_now("once"))],
        others=[Action(25, "other", run_now("once"))],
        check=_one_of_each_order,
    ),
    Scenario(
        "every timer is lost, and mended",
        [Action(1, "submit", submit("k", CRON))],
        events=[(45, lambda world: world.memory.timers.rows.clear())],
        setup=Setup(skews=SKEWS, may_repair=True),
        check=_is_repaired,
        limit=8_000,  # a queued or held run without a timer is found after an hour
    ),
]
