"""The calls that the function of operations makes on AWS for a slice of some items."""

from collections import Counter

import pytest

from punctual.domain.operations.operation import OperationAction
from tests.support.aws.moto_adapter import moto
from tests.support.builders import NOON, ManualClock
from tests.support.operations.world import OperationsWorld
from tests.support.ports import Ports

JOBS = 20  # of one slice
MAX_READS, MAX_BATCHES, MAX_TIMER_ROWS = 9, 3, 6  # of a slice of any size up to 100
# Calls for each item beside one write of its state: a cancel frees the name of the job, and ten
# runs share a message to their executor.
CALLS_OF_ITEMS = {
    OperationAction.PAUSE: {},
    OperationAction.RESUME: {},
    OperationAction.CANCEL: {"DeleteItem": JOBS},
    OperationAction.RUN_NOW: {"SendMessageBatch": JOBS // 10},
}


@pytest.mark.parametrize("action", CALLS_OF_ITEMS)
def test_item_costs_one_write_of_its_job(action: OperationAction) -> None:
    clock = ManualClock(NOON)
    with moto(clock) as aws:
        ports = Ports(**{name: getattr(aws.ports, name) for name in Ports.__dataclass_fields__})
        world = OperationsWorld(ports, clock, items_per_second=JOBS)
        keys = [world.submit(f"job {number}") for number in range(JOBS)]
        if action is OperationAction.RESUME:
            for key in keys:
                world.jobs().pause(*key)
        operation = world.begin(action)
        written_before = Counter(aws.written)
        calls = Counter(aws.spend(lambda: world.run_some(None, 1)))
        assert world.load(operation).done == JOBS
        written = Counter(aws.written) - written_before
    print(action.value, dict(calls), dict(written))
    assert calls.pop("UpdateItem") == JOBS + 1  # the states, and the operation
    assert calls.pop("BatchGetItem") <= MAX_READS
    assert calls.pop("BatchWriteItem") <= MAX_BATCHES
    assert dict(calls) == CALLS_OF_ITEMS[action]
    assert written.pop("jobs") == JOBS + 2  # the same, and the running row, which is deleted
    assert written.pop("timers", 0) <= MAX_TIMER_ROWS
    assert not written
