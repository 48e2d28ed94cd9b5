"""One tenant's recurring jobs, due at a steady rate for some virtual seconds."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from bench.poller import put_timer_rows
from punctual.aws.dynamodb.jobs.definitions import DynamoDefinitions
from punctual.aws.dynamodb.jobs.state_rows import to_row
from punctual.aws.dynamodb.lists.job_row import DefinitionHead, RecentOutcome, derive_job_row
from punctual.aws.dynamodb.lists.job_rows import JobRowChange, JobRows
from punctual.domain.identifiers import bucket_of, occurrence_id, shard_of, sortable_id
from punctual.domain.job_state import JobState, JobStatus, Rules, ScheduleKind
from punctual.domain.run import RunStatus
from punctual.domain.schedules.values import Every
from punctual.engine.ports.rows import DefinitionRow, JobKey
from punctual.engine.ports.timers import Timer
from tests.support.builders import NOON
from tests.support.load.functions import Functions
from tests.support.load.stage import POLLER, LoadStage
from tests.support.load.tables import PartitionKey, Tables
from tests.support.load.timeline import Timeline

TENANT = "acme"
PERIOD = timedelta(minutes=1)
FIRST_DUE = 120  # seconds after the start of the timeline
TIMERS_IN_A_BATCH = 400  # which an earlier poller put together
PAST_OUTCOMES = 30


class BusiestKey(NamedTuple):
    kind: str
    units: float
    key: str
    second: int


class Load:
    def __init__(self, stage: LoadStage, runs_a_second: int, seconds: int) -> None:
        self.stage = stage
        self.timeline = Timeline(NOON)
        self.tables = Tables(self.timeline)
        self.functions = Functions(stage, self.timeline, self.tables)
        self._seed(runs_a_second, seconds)
        self.tables.is_metered = True
        self.tables.on_write = self.functions._written

    def play(self, until: float) -> None:
        """Tick each minute, as the rule of the planner does, and play all that follows."""
        for second in range(20, int(until), 60):
            self.timeline.call(second, self.functions.tick)
        self.timeline.run(until)

    def _seed(self, runs_a_second: int, seconds: int) -> None:
        self.tables.on_write = lambda _table, _write: None
        runtime = self.functions.runtime(POLLER)
        ports, settings = runtime.ports, runtime.settings
        ports.partitions.raise_shard_count(self.stage.shards)
        definitions = DynamoDefinitions(runtime.dynamo, settings.jobs_table)
        rows = JobRows(runtime.dynamo, settings.lists_table, settings.list_slots, runtime.clock)
        states = list(_states(runs_a_second, seconds))
        runtime.dynamo.put(settings.jobs_table, [to_row(state) for state in states])
        definitions.put([_definition(state) for state in states])
        rows.write([_row(state) for state in states])
        timers: defaultdict[tuple[object, int], list[Timer]] = defaultdict(list)
        for state in states:
            assert state.next_at is not None
            shard = shard_of(state.job_id, self.stage.shards)
            timer = Timer(
                bucket_of(state.next_at), shard, state.next_at, TENANT, state.job_id, state.version
            )
            timers[state.next_at, shard].append(timer)
        for batch in timers.values():
            timer_rows = put_timer_rows(batch, TIMERS_IN_A_BATCH)
            runtime.dynamo.put(settings.timers_table, [row.item() for row in timer_rows])

    # Results

    def busiest_writes(self) -> list[BusiestKey]:
        """Return the busiest key of each kind, with its second, the busiest first."""
        return _busiest(self.tables.writes)

    def busiest_reads(self) -> list[BusiestKey]:
        return _busiest(self.tables.reads)


def _busiest(units: dict[tuple[PartitionKey, int], float]) -> list[BusiestKey]:
    best: dict[str, BusiestKey] = {}
    for (place, second), count in units.items():
        kind = _kind(place)
        if kind not in best or best[kind].units < count:
            best[kind] = BusiestKey(kind, count, place.pk, second)
    return sorted(best.values(), key=lambda key: key.units, reverse=True)


def _kind(place: PartitionKey) -> str:
    """Return the kind of rows under a key, as `bench.cost` names it."""
    parts = place.pk.split("#")
    match place.table:
        case "lists":
            return f"lists: {parts[1]}"
        case "control":
            return f"control: {parts[1]}"
        case "runs":
            return "runs: results" if len(parts) > 2 else "runs: run"
        case "jobs":
            return "jobs: job"
    return place.table


def _states(runs_a_second: int, seconds: int) -> Iterator[JobState]:
    for number in range(runs_a_second * seconds):
        due_at = NOON + timedelta(seconds=FIRST_DUE + number // runs_a_second)
        created_at = NOON - timedelta(days=1)
        job_id = sortable_id(created_at, number.to_bytes(10, "big"))
        yield JobState(
            tenant=TENANT,
            job_id=job_id,
            version=5,
            edition=1,
            definition=1,
            status=JobStatus.SCHEDULED,
            kind=ScheduleKind.INTERVAL,
            created_at=created_at,
            updated_at=due_at - PERIOD,
            schedule=Every(60, anchor_at=due_at - 60 * PERIOD),
            rules={1: Rules(definition_ref="1-body", effective_at=created_at)},
            planned_until=due_at - PERIOD,
            next_at=due_at,
            timer_at=due_at,
            latest_run_id=occurrence_id(job_id, due_at - PERIOD),
            write_ids=(f"{number:012x}",),
        )


def _name_of(state: JobState) -> str:
    return f"sync-{state.job_id[-8:]}"


def _definition(state: JobState) -> DefinitionRow:
    name = _name_of(state)
    document = {"name": name, "schedule_type": "INTERVAL", "interval_seconds": 60}
    return DefinitionRow(TENANT, state.job_id, "1-body", 1, state.created_at, name, document)


def _row(state: JobState) -> JobRowChange:
    assert state.next_at is not None
    times = [state.next_at - PERIOD * number for number in range(1, PAST_OUTCOMES + 1)]
    outcomes = [
        RecentOutcome(at, occurrence_id(state.job_id, at), RunStatus.SUCCESS) for at in times
    ]
    head = DefinitionHead(_name_of(state), {}, "ada")
    row = derive_job_row(state, head)
    return JobRowChange(JobKey(TENANT, state.job_id), 5, row, outcomes, None, is_first=True)
