"""The starts and processors that all containers of a stage share."""

from collections import Counter
from datetime import timedelta

import pytest

from punctual.domain.errors import Unavailable
from punctual.engine.ports.tenants.quota_rows import QuotaRow
from punctual.engine.quotas.container_quota import (
    CONTENDED_SECONDS,
    HOLD_SECONDS,
    MAX_CONTAINER_STARTS_PER_SECOND,
    MAX_QUEUE_SECONDS,
    NO_PROCESSOR_SECONDS,
    ContainerQuota,
    StartPermit,
)
from tests.support.builders import NOON, ManualClock

SECOND = timedelta(seconds=1)


class Rows:
    """Quota rows in memory."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], QuotaRow] = {}
        self.loses_swaps = False

    def read(self, tenant: str, quota_name: str) -> QuotaRow | None:
        return self.rows.get((tenant, quota_name))

    def swap(
        self, tenant: str, quota_name: str, expected_version: int, text: str
    ) -> QuotaRow | None:
        present = self.rows.get((tenant, quota_name), QuotaRow("", 0))
        if self.loses_swaps or present.version != expected_version:
            return present
        self.rows[tenant, quota_name] = QuotaRow(text, expected_version + 1)
        return None


class Stage:
    def __init__(self, max_cpu_units: int = 1_024) -> None:
        self.rows, self.clock, self.running = Rows(), ManualClock(NOON), 0
        self.max_cpu_units = max_cpu_units
        self.count_calls = 0

    def executor(self) -> ContainerQuota:
        return ContainerQuota(self.rows, self.clock, self.max_cpu_units, self._count)

    def _count(self) -> int:
        self.count_calls += 1
        return self.running


GRANTED = StartPermit(True, 0.0)
NO_PROCESSOR = StartPermit(False, NO_PROCESSOR_SECONDS, is_full=True)


def test_a_second_has_at_most_15_starts_of_all_executors() -> None:
    stage = Stage(max_cpu_units=1_000_000)
    executors = [stage.executor() for _ in range(4)]
    permits = [executors[number % 4].take(f"run-{number}", 256) for number in range(100)]
    waits = Counter(permit.wait_seconds for permit in permits if permit.is_granted)
    assert waits == dict.fromkeys(range(6), MAX_CONTAINER_STARTS_PER_SECOND) | {6: 10}


def test_queue_of_starts_ends_and_goes_on_later() -> None:
    stage = Stage(max_cpu_units=1_000_000)
    executor = stage.executor()
    granted = 0
    while executor.take(f"run-{granted}", 256).is_granted:
        granted += 1
    assert granted == MAX_CONTAINER_STARTS_PER_SECOND * (MAX_QUEUE_SECONDS + 1)
    stage.clock.advance(SECOND)
    assert executor.take("next", 256) == StartPermit(True, MAX_QUEUE_SECONDS)
    stage.clock.advance(60 * SECOND)
    assert executor.take("later", 256) == GRANTED


def test_row_of_a_wrong_clock_does_not_stop_starts() -> None:
    stage = Stage(max_cpu_units=1_000_000)
    stage.clock.advance(7_200 * SECOND)
    stage.executor().take("ahead", 256)
    stage.clock.set(NOON)
    assert stage.executor().take("now", 256) == GRANTED


def test_start_waits_while_no_processor_is_free() -> None:
    stage = Stage(max_cpu_units=1_024)
    executor = stage.executor()
    assert executor.take("a", 512) == GRANTED
    assert stage.executor().take("b", 512) == GRANTED
    assert stage.executor().take("c", 256) == NO_PROCESSOR
    executor.release("a")
    assert stage.executor().take("c", 256) == GRANTED
    assert executor.used_cpu_units() == 768


def test_repeated_request_of_one_start_holds_its_processors_once() -> None:
    stage = Stage()
    for _ in range(3):
        assert stage.executor().take("a", 1_024) == GRANTED


def test_sweep_takes_over_the_processors_of_starts() -> None:
    stage = Stage()
    executor = stage.executor()
    assert executor.take("a", 512) == GRANTED
    executor.count(512, ["a"])
    assert executor.used_cpu_units() == 512
    executor.count(0, [])
    assert executor.used_cpu_units() == 0


def test_running_containers_count_also_after_a_silent_sweep() -> None:
    stage = Stage()
    executor = stage.executor()
    executor.count(1_024, [])
    stage.clock.advance(HOLD_SECONDS * SECOND)
    stage.running = 1_024
    assert executor.take("a", 256) == NO_PROCESSOR
    stage.running = 0
    stage.clock.advance(HOLD_SECONDS * SECOND)
    assert executor.take("a", 256) == GRANTED


def test_row_that_others_write_each_time_is_asked_again() -> None:
    stage = Stage()
    stage.rows.loses_swaps = True
    assert stage.executor().take("a", 256) == StartPermit(False, CONTENDED_SECONDS)
    with pytest.raises(Unavailable):
        stage.executor().count(1, [])
