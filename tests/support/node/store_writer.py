"""Write transactions forever, and report each one when it is durable.

The test kills the process.
"""

import os
import sys
from pathlib import Path

from punctual.domain.run import Lease, RunStatus
from punctual.engine.ports.job_states import Swap
from punctual.node.sqlite.store import Store
from tests.support.builders import (
    NOON,
    RUN,
    ManualClock,
    a_definition_row,
    a_job_state,
    a_row,
    a_run,
    a_timer,
    after,
    an_id,
)

JOBS_PER_TRANSACTION = 5


def write(store: Store, number: int) -> None:
    """Write one transaction. It creates jobs, claims those of the last one, and ends older ones."""
    for age, step in ((0, create), (1, claim), (2, end)):
        if number >= age:
            for n in range(JOBS_PER_TRANSACTION):
                step(store, an_id((number - age) * JOBS_PER_TRANSACTION + n))


def create(store: Store, job_id: str) -> None:
    store.timers.put([a_timer(job_id=job_id)])
    store.job_states.put_definitions([a_definition_row(job_id, payload="x" * 1_000)])
    store.job_states.swap([Swap(a_job_state(job_id), 0)])


def claim(store: Store, job_id: str) -> None:
    running = a_job_state(job_id, 2, runs=(a_run(status=RunStatus.RUNNING, token=2),))
    store.job_states.swap([Swap(running, 1, {RUN: Lease(token=2, until=after(30))})])
    store.timers.delete([a_timer(job_id=job_id)])


def end(store: Store, job_id: str) -> None:
    store.job_states.swap([Swap(a_job_state(job_id, 3), 2, {RUN: None})])
    store.history.put_runs([a_row(job_id=job_id)])
    store.feed.publish([{"job_id": job_id}])


def main(folder: Path) -> None:
    store = Store.open(folder, ManualClock(NOON))
    number = 0
    while True:
        with store.transaction():
            write(store, number)
        os.write(1, b"%d\n" % number)
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
