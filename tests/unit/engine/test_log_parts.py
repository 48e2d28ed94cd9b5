"""The parts of a log that an executor outside sends, also from a hostile sender."""

from collections.abc import Sequence

import pytest

from punctual.domain.errors import Unavailable
from punctual.engine.changes.run_results import log_part_key, log_parts_folder
from punctual.engine.execution.log_parts import PARTS_READ_AT_ONCE, merge_log, read_log_parts
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE
from punctual.engine.ports.rows import JobKey
from tests.support.simulation.small_ports import MemoryBlobs

KEY = JobKey("acme", "job-1")
FOLDER = log_parts_folder(KEY, "run-1", 1)


class CountingBlobs(MemoryBlobs):
    """Counts the blobs that are read, and the most that one call reads."""

    def __init__(self) -> None:
        super().__init__()
        self.read_count = self.most_at_once = 0

    def get_many(self, names: Sequence[str]) -> Sequence[bytes | None]:
        self.read_count += len(names)
        self.most_at_once = max(self.most_at_once, len(names))
        return super().get_many(names)


def stored(parts: dict[int, bytes]) -> CountingBlobs:
    blobs = CountingBlobs()
    for offset, text in parts.items():
        blobs.put(log_part_key(FOLDER, offset), text, TEXT_CONTENT_TYPE)
    return blobs


def test_parts_of_a_log_are_merged_in_order() -> None:
    blobs = stored({5 * number: b"%04d\n" % number for number in range(100)})
    merged = merge_log(blobs, KEY, "run-1", 1, 500, b"end")
    assert merged is not None
    assert merged.blob.data == b"".join(b"%04d\n" % number for number in range(100)) + b"end"
    assert len(merged.part_names) == 100
    assert blobs.most_at_once == PARTS_READ_AT_ONCE


def test_overlapping_parts_are_not_all_read() -> None:
    blobs = stored(dict.fromkeys(range(1000), b"x" * 5000))
    merged = merge_log(blobs, KEY, "run-1", 1, 1_000, b"")
    assert merged is not None
    assert len(merged.blob.data) == 5_999
    assert blobs.read_count <= PARTS_READ_AT_ONCE + 1
    blobs.read_count = 0
    assert read_log_parts(blobs, KEY, "run-1", 1, 0) == merged.blob.data
    assert blobs.read_count <= PARTS_READ_AT_ONCE + 1


@pytest.mark.parametrize("left", [{}, {40: b"later"}])
def test_log_that_another_call_merged_is_not_replaced_by_its_end(left: dict[int, bytes]) -> None:
    with pytest.raises(Unavailable, match="try again"):
        merge_log(stored(left), KEY, "run-1", 1, 100, b"end")


def test_log_of_one_call_has_no_parts() -> None:
    merged = merge_log(stored({}), KEY, "run-1", 1, 0, b"all")
    assert merged is not None
    assert (merged.blob.data, list(merged.part_names)) == (b"all", [])
