"""The parts of a log that an external executor sends, also from a hostile sender."""

from collections.abc import Callable, Sequence

import pytest

from punctual.domain.errors import Unavailable
from punctual.engine.execution.log_parts import (
    LOG_PART_BYTES,
    MAX_LIVE_LOG_READ_BYTES,
    MAX_LOG_BYTES,
    MAX_TEXTS_AT_ONCE,
    PARTS_READ_AT_ONCE,
    LogOfClaim,
    LogText,
    append_to_logs,
    merge_log,
    read_log_parts,
)
from punctual.engine.ports.blobs import BlobVersion, VersionedPut
from punctual.engine.ports.rows import JobKey
from tests.support.simulation.small_ports import MemoryBlobs

LOG = LogOfClaim(JobKey("acme", "job-1"), "run-1", 1, 7)
MAX_PARTS = MAX_LOG_BYTES // LOG_PART_BYTES
LONG = b"0123456789abcdef" * (LOG_PART_BYTES // 8)  # two parts


class CountingBlobs(MemoryBlobs):
    """Counts the blobs that are read, and calls `before_put` before each put."""

    def __init__(self) -> None:
        super().__init__()
        self.read_count = self.most_at_once = self.most_versions_at_once = 0
        self.before_put: Callable[[], None] = lambda: None

    def get_many(self, names: Sequence[str]) -> Sequence[bytes | None]:
        self.read_count += len(names)
        self.most_at_once = max(self.most_at_once, len(names))
        return super().get_many(names)

    def get_versions(self, names: Sequence[str]) -> Sequence[BlobVersion | None]:
        self.most_versions_at_once = max(self.most_versions_at_once, len(names))
        return super().get_versions(names)

    def put_versions(self, puts: Sequence[VersionedPut]) -> Sequence[bool]:
        self.before_put()
        return super().put_versions(puts)


@pytest.fixture
def blobs() -> CountingBlobs:
    return CountingBlobs()


def send(blobs: MemoryBlobs, offset: int, text: bytes, log: LogOfClaim = LOG) -> None:
    append_to_logs(blobs, [LogText(log, offset, text)])


def merged(blobs: MemoryBlobs, offset: int, text: bytes = b"") -> bytes:
    log = merge_log(blobs, LogText(LOG, offset, text))
    return b"" if log is None else log.blob.data


def test_texts_of_a_log_grow_in_one_part(blobs: CountingBlobs) -> None:
    for number in range(100):
        send(blobs, 5 * number, b"%04d\n" % number)
    whole = b"".join(b"%04d\n" % number for number in range(100))
    assert blobs.blobs == {LOG.part_name(0): whole}
    assert merged(blobs, 500, b"end") == whole + b"end"


def test_long_log_has_full_parts_and_is_read_in_few_calls(blobs: CountingBlobs) -> None:
    sent = 0
    for number in range(19):
        text = (b"%06d" % number) * 20_000
        send(blobs, sent, text)
        sent += len(text)
    assert len(blobs.blobs) == -(-sent // LOG_PART_BYTES)
    whole = b"".join((b"%06d" % number) * 20_000 for number in range(19))
    for after in (0, 1, LOG_PART_BYTES - 1, LOG_PART_BYTES, sent - 1, sent, sent + 5, 2**40):
        assert read_log_parts(blobs, LOG, after) == whole[after:][:MAX_LIVE_LOG_READ_BYTES], after
    blobs.read_count = 0
    assert merged(blobs, sent, b"end") == whole + b"end"
    assert blobs.read_count == len(blobs.blobs)
    assert blobs.most_at_once <= PARTS_READ_AT_ONCE


def test_text_across_two_parts_is_stored_in_both(blobs: CountingBlobs) -> None:
    send(blobs, 0, LONG[:-5])
    send(blobs, len(LONG) - 5, b"56789abc")
    assert [len(data) for data in blobs.blobs.values()] == [LOG_PART_BYTES, LOG_PART_BYTES, 3]
    assert read_log_parts(blobs, LOG, len(LONG) - 5) == b"56789abc"


def test_texts_of_one_call_are_stored_together(blobs: CountingBlobs) -> None:
    other = LOG._replace(run_id="run-2")
    texts = [LogText(LOG, 0, b"one"), LogText(other, 0, b"1"), LogText(LOG, 3, b"two")]
    append_to_logs(blobs, texts)
    assert read_log_parts(blobs, LOG, 0) == b"onetwo"
    assert read_log_parts(blobs, other, 0) == b"1"


def test_many_texts_are_stored_with_few_parts_in_memory(blobs: CountingBlobs) -> None:
    logs = [LOG._replace(run_id=f"run-{number}") for number in range(3 * MAX_TEXTS_AT_ONCE)]
    texts = [LogText(log, 0, log.run_id.encode()) for log in logs]
    append_to_logs(blobs, [*texts, LogText(logs[0], len(logs[0].run_id), b" more")])
    assert read_log_parts(blobs, logs[0], 0) == b"run-0 more"
    assert all(read_log_parts(blobs, log, 0) == log.run_id.encode() for log in logs[1:])
    assert blobs.most_versions_at_once == MAX_TEXTS_AT_ONCE


def test_late_or_shorter_text_loses_nothing(blobs: CountingBlobs) -> None:
    send(blobs, 0, b"one two three")
    for offset, text in [(0, b"one"), (0, b""), (4, b"two"), (4, b"XXX"), (13, b"")]:
        send(blobs, offset, text)
        assert merged(blobs, 13) == b"one two three"


def test_text_that_was_delayed_between_read_and_put_loses_nothing(blobs: CountingBlobs) -> None:
    """The delayed call has read the part, and puts it after two later texts were stored."""
    send(blobs, 0, b"one ")

    def later_calls() -> None:
        blobs.before_put = lambda: None
        send(blobs, 4, b"two ")
        send(blobs, 8, b"three")

    blobs.before_put = later_calls
    send(blobs, 4, b"two ")
    assert merged(blobs, 13) == b"one two three"


def test_part_that_changes_during_each_put_is_tried_again_by_the_sender(
    blobs: CountingBlobs,
) -> None:
    counted = iter(range(9))
    blobs.before_put = lambda: blobs.put(LOG.part_name(0), b"x" * next(counted), "text/plain")
    with pytest.raises(Unavailable, match="try again"):
        send(blobs, 0, b"a long enough text")


def test_hostile_sender_fills_a_fixed_number_of_parts(blobs: CountingBlobs) -> None:
    text = b"x" * 1_000_000
    for offset in (0, 1, 2, 999, 5_000_000, 1, MAX_LOG_BYTES - 1, MAX_LOG_BYTES, 2**40):
        send(blobs, offset, text)
    for offset in range(0, 2 * MAX_LOG_BYTES, 400_000):
        send(blobs, offset, text)
    assert len(blobs.blobs) == MAX_PARTS
    assert sum(map(len, blobs.blobs.values())) == MAX_LOG_BYTES
    log = merge_log(blobs, LogText(LOG, MAX_LOG_BYTES, b"end"))
    assert log is not None
    assert (len(log.blob.data), log.is_truncated) == (MAX_LOG_BYTES, True)
    assert sorted(log.part_names) == sorted(blobs.blobs)


def test_text_behind_a_gap_is_cut_and_flagged(blobs: CountingBlobs) -> None:
    send(blobs, 0, b"one")
    send(blobs, 5, b"later")
    send(blobs, 2 * LOG_PART_BYTES, b"much later")
    assert read_log_parts(blobs, LOG, 0) == b"one"
    log = merge_log(blobs, LogText(LOG, 10, b"end"))
    assert log is not None
    assert (log.blob.data, log.is_truncated) == (b"oneend", True)


@pytest.mark.parametrize("offset", [1, 100, LOG_PART_BYTES, 2**40])
def test_log_that_another_call_merged_is_not_replaced_by_its_end(
    blobs: CountingBlobs, offset: int
) -> None:
    with pytest.raises(Unavailable, match="try again"):
        merge_log(blobs, LogText(LOG, offset, b"end"))


def test_log_of_one_call_has_no_parts_and_reads_none(blobs: CountingBlobs) -> None:
    log = merge_log(blobs, LogText(LOG, 0, b"all"))
    assert log is not None
    assert (log.blob.data, list(log.part_names), log.is_truncated) == (b"all", [], False)
    assert blobs.read_count == 0


def test_parts_of_another_claim_of_the_attempt_are_not_read(blobs: CountingBlobs) -> None:
    earlier = LOG._replace(token=6)
    send(blobs, 0, b"of the claim before", earlier)
    assert read_log_parts(blobs, LOG, 0) is None
    send(blobs, 0, b"own ")
    assert merged(blobs, 4, b"end") == b"own end"
    assert read_log_parts(blobs, earlier, 0) == b"of the claim before"
