"""The tables of lists over moto, with a crash at a call that the test chooses."""

from collections.abc import Sequence
from typing import Any

from punctual.aws.dynamodb.lists.job_rows import JobRows
from punctual.aws.dynamodb.stream_records import Record, parse_record
from punctual.identity import new_id
from punctual.lambdas.status.changes import Changes, compare_states
from punctual.lambdas.status.definitions import DefinitionCache
from punctual.lambdas.status.job_list import JobListWriter
from tests.support.aws.moto_adapter import Moto
from tests.support.aws.stream_records import Stream
from tests.support.builders import JOB, ManualClock, a_definition_row


class Crashed(BaseException):
    """The environment is gone. No code can catch this."""


class CrashingLists:
    """The writer of job rows. `crash_in` calls of DynamoDB succeed before one crashes."""

    def __init__(self, aws: Moto, clock: ManualClock) -> None:
        self.aws, self.clock = aws, clock
        self.stream = Stream(aws)
        self.crash_in: int | None = None
        job_states = aws.ports.job_states
        job_states.put_definitions([a_definition_row(JOB)])
        self.rows = JobRows(job_states._dynamo, aws.settings.lists_table, 4, clock, new_id(clock))
        self.writer = JobListWriter(self.rows, DefinitionCache(job_states))
        aws.clients.dynamodb.meta.events.register("before-call.dynamodb.*", self._call)

    def _call(self, **_: Any) -> None:
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.crash_in = None
                raise Crashed

    def follow(self, records: Sequence[Any]) -> None:
        self.write(changes_of(records))

    def write(self, changes: Sequence[tuple[Record, Changes]]) -> None:
        self.writer.write_changes(changes, self.clock())


def changes_of(records: Sequence[Any]) -> list[tuple[Record, Changes]]:
    parsed = [parse_record(record) for record in records]
    return [(record, compare_states(record.old, record.new)) for record in parsed if record]
