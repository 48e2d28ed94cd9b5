"""The status function on a simulated stream: it crashes, stalls, repeats and is late at each call.

The records of a job stand in one shard, in order. A shard has one invocation at a time, until
Lambda takes one for lost. Such an invocation may go on for a while, or its last write takes effect
late. A failed batch comes again from its first record, whole or cut.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from zlib import crc32

from botocore.exceptions import ClientError

from punctual.aws.dynamodb.lists.change_feed import DynamoChangeFeed
from punctual.aws.dynamodb.lists.failures import DynamoFailures
from punctual.aws.dynamodb.lists.job_rows import JobRows
from punctual.aws.dynamodb.lists.runs import TenantRunList
from punctual.domain.errors import Unavailable
from punctual.domain.job_state import JobState
from punctual.engine.ports.rows import DefinitionRow, JobKey
from punctual.engine.queries.changes import ChangeQueries
from punctual.identity import new_id
from punctual.lambdas.status.change_feed import ChangeFeedWriter
from punctual.lambdas.status.definitions import DefinitionCache
from punctual.lambdas.status.failures import FailureWriter
from punctual.lambdas.status.handler import StatusHandler
from punctual.lambdas.status.job_list import JobListWriter
from punctual.lambdas.status.run_list import RunListWriter
from tests.support.aws.memory_dynamodb import Effect, MemoryDynamoDB, no_answer
from tests.support.aws.stream_records import Row, Stream
from tests.support.builders import ManualClock
from tests.support.list_plays.recorded_plays import HistoryThen, RecordedPlays, Truth, Write
from tests.support.simulation.invariants import Swapped
from tests.support.simulation.memory import MemoryJobStates, WriteObserver
from tests.support.simulation.port_faults import Crash
from tests.support.simulation.small_ports import MemoryFeed, MemoryJobNames
from tests.support.simulation.world import START

TABLE = "lists"
SHARDS = 3
MAX_BATCH = 6
MAX_STALLS = 2  # invocations that wait in a call at the same time
EXPIRED_AFTER = timedelta(days=31)  # all is kept for 30 days
SETTLED_AFTER = timedelta(seconds=40)  # after which no write is still under way
RATES = (0.02, 0.1, 0.25)  # of faults at each call
SLOWEST_SECONDS = (0.01, 0.3, 1.9)  # each half of a call
QUICKEST_CALL = timedelta(microseconds=100)  # a row of the feed has the time of its write
SLOW_CALL_PROBABILITY = 0.3
MAX_INVOCATIONS = 20_000
FAULTS = ("crash", "crash after", "no answer", "lost", "late", "late", "stall", "stall", "stall")
WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"})


class Shard:
    def __init__(self) -> None:
        self.records: list[Row] = []
        self.attempt = 0  # of the batch at its begin
        self.limit = MAX_BATCH  # records of the next batch


class Outage(NamedTuple):
    """For some calls the function does not reach the table, or gets no answers from it."""

    first: int
    call_count: int
    answers_lost: bool  # whether the calls take effect


class StatusPlay:
    def __init__(self, plays: RecordedPlays, seed: int, outages: Sequence[Outage] = ()) -> None:
        self._outages = outages
        self._calls = 0
        self.chance = random.Random(f"status {seed}")
        self.clock = ManualClock(START)
        self.truth = Truth.of(plays)
        self.database = MemoryDynamoDB()
        self.database.faults = self._call
        self.list_slots = self.chance.choice((1, 2, 4))
        self.feed_slots = self.chance.choice((1, 2, 4))
        self.job_states = MemoryJobStates(self.clock, WriteObserver(), MemoryJobNames())
        self.job_states.put_definitions(plays.definitions)
        self.history = cast(Any, HistoryThen(plays, self.truth))
        self.faults = 0
        self.during_stall: Callable[[], None] = lambda: None  # what clients do meanwhile
        self.dynamo = self.database.dynamo()
        self._new_id = new_id(self.clock)
        self._rate = self.chance.choice(RATES)
        self._slowest = self.chance.choice(SLOWEST_SECONDS)
        self._shards = [Shard() for _ in range(SHARDS)]
        self._stream = Stream()
        self._late_writes: list[Effect] = []
        self._in_status = 0  # invocations under way, one in a call of the other
        self._invocations = 0

    @property
    def job_rows(self) -> JobRows:
        return JobRows(self.dynamo, TABLE, self.list_slots, self.clock, self._new_id)

    @property
    def run_list(self) -> TenantRunList:
        return TenantRunList(self.dynamo, TABLE, self.list_slots)

    @property
    def failures(self) -> DynamoFailures:
        return DynamoFailures(self.dynamo, TABLE, self.list_slots, self.clock)

    @property
    def change_feed(self) -> DynamoChangeFeed:
        return DynamoChangeFeed(self.dynamo, TABLE, self.feed_slots, self.clock)

    @property
    def change_queries(self) -> ChangeQueries:
        return ChangeQueries(self.change_feed, cast(Any, self.job_states), self.history)

    def definition_of(self, state: JobState) -> DefinitionRow:
        """Return the definition in force."""
        ref = (JobKey(state.tenant, state.job_id), state.current_rules.definition_ref)
        return self.job_states.load_definitions([ref])[ref]

    def write(self, write: Write) -> None:
        """Let an engine process write a job state or a history row."""
        self.clock.now = max(self.clock.now, write.at)
        self.truth.apply(write)
        if not isinstance(write, Swapped):
            return
        state = write.new.state
        self.job_states.rows[JobKey(state.tenant, state.job_id)] = write.new
        old = None if write.old is None else write.old.state
        record = self._stream.of(old, state)
        record["dynamodb"]["ApproximateCreationDateTime"] = write.at.timestamp()
        self._shards[crc32(state.job_id.encode()) % SHARDS].records.append(record)

    def expire(self) -> None:
        """Let all jobs expire. The stream tells of their removal."""
        self.clock.now += EXPIRED_AFTER
        for key, stored in self.truth.states.items():
            if not stored.state.is_blank:
                record = self._stream.of(stored.state, None)
                record["dynamodb"]["ApproximateCreationDateTime"] = self.clock.now.timestamp()
                self._shards[crc32(key.job_id.encode()) % SHARDS].records.append(record)
        self.job_states.rows.clear()
        self.truth.clear()

    def step(self) -> None:
        """Let the function process a batch of some shard, if one has records."""
        ready = [shard for shard in self._shards if shard.records]
        if ready:
            self._invoke(self.chance.choice(ready))

    def settle(self) -> None:
        """Process all records. No write is under way after this."""
        while any(shard.records for shard in self._shards):
            self.step()
        self._finish_late_writes(1)
        self.clock.now += SETTLED_AFTER

    def _invoke(self, shard: Shard) -> None:
        self._invocations += 1
        assert self._invocations < MAX_INVOCATIONS, "rule 7: the function repeats without an end"
        batch = shard.records[: self.chance.randint(1, shard.limit)]
        shard.attempt += 1
        attempt = shard.attempt
        self._in_status += 1
        try:
            failed = self._handler().handle(batch)
            assert not failed, "no record is unreadable"
        except (Crash, Unavailable):
            if shard.attempt == attempt:
                shard.limit = self.chance.choice((len(batch), max(1, len(batch) // 2)))
                self.clock.now += timedelta(seconds=self.chance.choice((0, 1, 15)))
            return
        finally:
            self._in_status -= 1
        if shard.attempt == attempt:  # else Lambda has taken this invocation for lost
            del shard.records[: len(batch)]
            shard.limit = MAX_BATCH

    def _handler(self) -> StatusHandler:
        """Return the handler of a new environment, without what has nothing to do with lists."""
        definitions = DefinitionCache(cast(Any, self.job_states))
        return StatusHandler(
            job_states=cast(Any, self.job_states),
            blobs=cast(Any, None),
            feed=MemoryFeed(),
            job_list=JobListWriter(self.job_rows, definitions),
            run_list=RunListWriter(self.run_list, self.history, definitions),
            change_feed=ChangeFeedWriter(self.change_feed, definitions),
            failures=FailureWriter(self.failures, self.history),
            job_data=cast(Any, _NoJobData()),
            tenant_counters=cast(Any, SimpleNamespace(count=lambda *_: None)),
            audit=cast(Any, SimpleNamespace(append=lambda *_: None)),
            claim_places=None,
            run_events="all",
            clock=self.clock,
            log=cast(Any, _NoTelemetry()),
        )

    def _call(self, operation: str, effect: Effect) -> Any:
        """Make a call of the function, or of a reader, which has no faults."""
        if not self._in_status:
            return effect()
        self._pass_time()
        self._calls += 1
        for outage in self._outages:
            if outage.first <= self._calls < outage.first + outage.call_count:
                self.faults += 1
                if outage.answers_lost:
                    effect()
                raise no_answer()
        if self.chance.random() < 0.2:
            self._finish_late_writes(0.5)
        if self.chance.random() >= self._rate:
            answer = effect()
            self._pass_time()
            return answer
        self.faults += 1
        return self._break(operation, effect)

    def _break(self, operation: str, effect: Effect) -> Any:
        match self.chance.choice(FAULTS):
            case "crash":
                raise Crash("before a call")
            case "crash after":
                effect()
                raise Crash("after a call")
            case "lost":
                effect()
            case "late" if operation in WRITES:
                self._late_writes.append(effect)
            case "stall":
                self._stall()
                answer = effect()
                self._stall()
                return answer
        raise no_answer()

    def _stall(self) -> None:
        """Wait in a call, while other invocations go on, also one with the same batch."""
        if self._in_status <= MAX_STALLS:
            for _ in range(self.chance.randint(0, 3)):
                self.step()
        under_way, self._in_status = self._in_status, 0
        self.during_stall()
        self._in_status = under_way

    def _finish_late_writes(self, probability: float) -> None:
        late_writes, self._late_writes = self._late_writes, []
        for effect in late_writes:
            if self.chance.random() > probability:
                self._late_writes.append(effect)
                continue
            with suppress(ClientError):  # its condition fails by now
                effect()

    def _pass_time(self) -> None:
        self.clock.now += QUICKEST_CALL
        if self.chance.random() < SLOW_CALL_PROBABILITY:
            self.clock.now += timedelta(seconds=self.chance.uniform(0, self._slowest))


class _NoJobData:
    def mark_payloads(self, _keys: Any) -> None:
        pass

    def find(self, _key: JobKey) -> Any:
        return SimpleNamespace(payload_ids=(), rows=())


class _NoTelemetry:
    def __call__(self, event: str, /, **fields: Any) -> None:
        pass

    def error(self, event: str, /, **fields: Any) -> None:
        raise AssertionError(f"{event}: {fields}")

    def metric(self, metric: Any, value: float = 1) -> None:
        pass

    def invocation(self) -> Any:
        return nullcontext()
