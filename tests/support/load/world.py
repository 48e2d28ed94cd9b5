"""One tenant's recurring jobs, due at a steady rate for some virtual seconds."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from bench.poller import put_timer_rows
from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.control.counters import Counters
from punctual.aws.dynamodb.jobs.definitions import DynamoDefinitions
from punctual.aws.dynamodb.jobs.state_rows import to_row
from punctual.aws.dynamodb.lists.job_row import DefinitionHead, RecentOutcome, derive_job_row
from punctual.aws.dynamodb.lists.job_rows import JobRowChange, JobRows
from punctual.aws.dynamodb.lists.keys import ListKind
from punctual.domain.identifiers import bucket_of, occurrence_id, shard_of, sortable_id
from punctual.domain.job_state import JobState, JobStatus, Rules, ScheduleKind
from punctual.domain.run import RunStatus
from punctual.domain.schedules.values import Every, Once
from punctual.engine.ports.rows import DefinitionRow, JobKey
from punctual.engine.ports.timers import Timer
from tests.support.builders import NOON
from tests.support.load.functions import Functions
from tests.support.load.stage import POLLER, STATUS, LoadStage
from tests.support.load.tables import PartitionKey, Tables, Write
from tests.support.load.timeline import Timeline

TENANT = "acme"
PERIOD = timedelta(minutes=1)
FIRST_DUE = 120  # seconds after the start of the timeline
TIMERS_IN_A_BATCH = 400  # which an earlier poller put together
PAST_OUTCOMES = 30
FOLDED_AFTER = timedelta(minutes=1)


class BusiestKey(NamedTuple):
    kind: str
    units: float
    key: str


class JobKind(StrEnum):
    """Recurring jobs share rows of timers and have outcomes. A one-time job has a timer alone."""

    RECURRING = "recurring"
    ONE_TIME = "one-time"


class Load:
    def __init__(
        self,
        stage: LoadStage,
        runs_a_second: int,
        seconds: int,
        kind: JobKind = JobKind.RECURRING,
    ) -> None:
        self.stage = stage
        self.seconds = seconds
        self.kind = kind
        self.lags: list[float] = []  # from the write of a job state until a list row has it
        self._unlisted: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        self.timeline = Timeline(NOON)
        self.tables = Tables(self.timeline)
        self.functions = Functions(stage, self.timeline, self.tables)
        self._seed(runs_a_second, seconds)
        self.tables.is_metered = True
        self.tables.on_write = self._written

    def play(self, until: float) -> None:
        """Tick each minute, as the rule of the planner does, and play all that follows."""
        for second in range(20, int(until), 60):
            self.timeline.call(second, self.functions.tick)
        self.timeline.run(until)

    def _written(self, table: str, write: Write) -> None:
        """Hand a change to the stream, and note when the list row of a job shows it."""
        self.functions.written(table, write)
        row = write.after or {}
        if table == "jobs" and write.key.sk == keys.STATE_SORT_KEY:
            version = int(row[keys.VERSION_ATTR]["N"])
            self._unlisted[write.key.pk].append((version, write.seconds))
        elif table == "lists" and write.key.pk.split("#")[1] == ListKind.JOBS:
            version = int(row[keys.VERSION_ATTR]["N"])
            job = self._unlisted[keys.job_partition(TENANT, write.key.sk)]
            shown = [entry for entry in job if entry[0] <= version]
            self.lags += [write.seconds - seconds for _, seconds in shown]
            job[:] = job[len(shown) :]

    def _seed(self, runs_a_second: int, seconds: int) -> None:
        self.tables.on_write = lambda _table, _write: None
        runtime = self.functions.runtime(POLLER)
        ports, settings = runtime.ports, runtime.settings
        ports.partitions.raise_shard_count(self.stage.shards)
        definitions = DynamoDefinitions(runtime.dynamo, settings.jobs_table)
        rows = JobRows(
            runtime.dynamo,
            settings.lists_table,
            settings.list_slots,
            runtime.clock,
            runtime.new_id,
        )
        states = list(_states(runs_a_second, seconds, self.kind))
        runtime.dynamo.put(settings.jobs_table, [to_row(state) for state in states])
        definitions.put([_definition(state) for state in states])
        rows.write([_row(state) for state in states])
        is_shared = self.kind is JobKind.RECURRING
        timers: defaultdict[tuple[object, int], list[Timer]] = defaultdict(list)
        for state in states:
            assert state.next_at is not None
            shard = shard_of(state.job_id, self.stage.shards)
            timer = Timer(
                bucket_of(state.next_at), shard, state.next_at, TENANT, state.job_id, state.version
            )
            timers[state.next_at, shard].append(timer)
        for batch in timers.values():
            timer_rows = put_timer_rows(batch, TIMERS_IN_A_BATCH if is_shared else 1)
            runtime.dynamo.put(settings.timers_table, [row.item() for row in timer_rows])

    # Results

    def busiest_writes(self) -> list[BusiestKey]:
        """Return the busiest key of each kind, the busiest first, with its units a second.

        These are all units of the play, divided by the seconds of the load. So they are what a
        load takes that lasts, in which all steps of a run happen in each second.
        """
        return _busiest(self.tables.writes, self.seconds)

    def busiest_reads(self) -> list[BusiestKey]:
        return _busiest(self.tables.reads, self.seconds)

    def ended_runs(self) -> int:
        rows = self.tables.rows("runs")
        return sum(row[keys.SK]["S"].startswith("run#") for row in rows)

    def counted_successes(self) -> int:
        """Return the successes that `GET /stats` shows, after all slices are folded."""
        counters = Counters(
            self.functions.runtime(STATUS).dynamo,
            "control",
            lambda: NOON + timedelta(seconds=self.timeline.seconds) + FOLDED_AFTER,
        )
        counters.fold(TENANT)
        return counters.totals(TENANT).get("run_SUCCESS", 0)


def _busiest(units: dict[tuple[PartitionKey, int], float], seconds: int) -> list[BusiestKey]:
    sums: defaultdict[PartitionKey, float] = defaultdict(float)
    for (place, _), count in units.items():
        sums[place] += count / seconds
    best: dict[str, BusiestKey] = {}
    for place, count in sums.items():
        kind = _kind(place)
        if kind not in best or best[kind].units < count:
            best[kind] = BusiestKey(kind, count, place.pk)
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


def _states(runs_a_second: int, seconds: int, kind: JobKind) -> Iterator[JobState]:
    recurs = kind is JobKind.RECURRING
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
            kind=ScheduleKind.INTERVAL if recurs else ScheduleKind.FUTURE,
            created_at=created_at,
            updated_at=due_at - PERIOD,
            schedule=Every(60, anchor_at=due_at - 60 * PERIOD) if recurs else Once(due_at),
            rules={1: Rules(definition_ref="1-body", effective_at=created_at)},
            planned_until=due_at - PERIOD if recurs else None,
            next_at=due_at,
            timer_at=due_at,
            latest_run_id=occurrence_id(job_id, due_at - PERIOD) if recurs else "",
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
    is_recurring = state.kind is ScheduleKind.INTERVAL
    outcomes = [
        RecentOutcome(at, occurrence_id(state.job_id, at), RunStatus.SUCCESS)
        for at in times
        if is_recurring
    ]
    head = DefinitionHead(_name_of(state), {}, "ada")
    row = derive_job_row(state, head)
    return JobRowChange(JobKey(TENANT, state.job_id), 5, row, outcomes, None, is_first=True)
