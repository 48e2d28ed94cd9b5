"""The stream of the jobs table, and what Lambda does with it.

A shard hands its records over in order. Lambda reads a shard four times a second. It collects a
batch for the window unless it is full. It works on some batches of a shard at a time, each with the
records of other rows. A failed batch is repeated in halves.
"""

from bisect import insort
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from tests.support.load.stage import LoadStage
from tests.support.load.tables import Write
from tests.support.load.timeline import Timeline

STREAM_DELAY = 0.2  # seconds from a write until the stream shows it, assumed
READ_INTERVAL = 0.25  # seconds between two reads of a shard, as Lambda documents it
INVOKE_DELAY = 0.03  # seconds from the decision to invoke until a warm function runs, assumed
RETRY_DELAY = 1.0  # seconds until Lambda repeats a failed batch, assumed
_FIRST_NUMBER = 10**20

Record = dict[str, Any]
Invoke = Callable[[Sequence[Record], Callable[[BaseException | None], None]], None]


class _Reader:
    """The records of a shard with the same remainder of their key, as one batch at a time."""

    def __init__(self) -> None:
        # By the time when the reader sees them, and their number.
        self.records: list[tuple[float, int, Record]] = []
        self.is_busy = False
        self.has_timer = False
        self.parts: list[int] = []  # sizes of the next batches, after a failed one


class JobStream:
    def __init__(self, timeline: Timeline, stage: LoadStage, invoke: Invoke) -> None:
        self._timeline = timeline
        self._stage = stage
        self._invoke = invoke
        self._number = _FIRST_NUMBER
        count = stage.stream_shards * stage.batches_at_a_time
        self._readers = [_Reader() for _ in range(count)]
        self.batches = 0
        self.record_count = 0

    def append(self, write: Write) -> None:
        self._number += 1
        self.record_count += 1
        number = crc32(write.key.pk.encode()) % len(self._readers)
        shard = number % self._stage.stream_shards
        # Shards are read at different moments.
        phase = shard / self._stage.stream_shards * READ_INTERVAL
        visible_at = write.seconds + STREAM_DELAY
        reads = -(-(visible_at - phase) // READ_INTERVAL)
        seen_at = phase + reads * READ_INTERVAL
        reader = self._readers[number]
        # A pool of threads writes ahead of its clock, so a record may come before earlier ones.
        record = _record(write, self._number, self._timeline)
        insort(reader.records, (seen_at, self._number, record))
        if not reader.has_timer and not reader.is_busy:
            reader.has_timer = True
            self._timeline.call(seen_at, lambda: self._collect(reader))

    def _collect(self, reader: _Reader) -> None:
        """Hand a batch over if it is full or its window is over. Else come back later."""
        reader.has_timer = False
        if reader.is_busy or not reader.records:
            return
        now, stage = self._timeline.seconds, self._stage
        size = reader.parts[0] if reader.parts else stage.batch_size
        seen = [record for seen_at, _, record in reader.records[:size] if seen_at <= now]
        window_ends_at = reader.records[0][0] + stage.batching_window
        if len(seen) < size and now < window_ends_at:
            later = [seen_at for seen_at, _, _ in reader.records[:size] if seen_at > now]
            reader.has_timer = True
            self._timeline.call(min([window_ends_at, *later]), lambda: self._collect(reader))
            return
        if reader.parts:
            reader.parts.pop(0)
        reader.is_busy = True
        self.batches += 1

        def done(error: BaseException | None) -> None:
            reader.is_busy = False
            begin_again = INVOKE_DELAY
            if error is None:
                del reader.records[: len(seen)]
            else:
                half = -(-len(seen) // 2)
                reader.parts[:0] = [half, len(seen) - half] if len(seen) > 1 else [1]
                begin_again = RETRY_DELAY
            if reader.records:
                reader.has_timer = True
                next_at = max(self._timeline.seconds + begin_again, reader.records[0][0])
                self._timeline.call(next_at, lambda: self._collect(reader))

        self._invoke(seen, done)


def _record(write: Write, number: int, timeline: Timeline) -> Record:
    kind = "INSERT" if write.before is None else "REMOVE" if write.after is None else "MODIFY"
    images = {"OldImage": write.before, "NewImage": write.after}
    # DynamoDB gives the time of a change in whole seconds.
    at = int(timeline.start.timestamp() + write.seconds)
    return {
        "eventID": f"event-{number}",
        "eventName": kind,
        "dynamodb": {
            "ApproximateCreationDateTime": at,
            "Keys": write.key.item(),
            "SequenceNumber": str(number),
            **{name: image for name, image in images.items() if image is not None},
        },
    }
