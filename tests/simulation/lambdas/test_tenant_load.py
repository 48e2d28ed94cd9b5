"""One tenant at 10,000 runs a second, in a stage sized for it: no key is too hot, no list too late.

The real planner, pollers, executors and status functions play in virtual time, over tables in
memory that count units by partition key and second.
"""

from collections.abc import Mapping

import pytest

from punctual.domain.errors import Unavailable
from tests.support.load.lags import Lags
from tests.support.load.stage import SIZED_FOR_10_000, STATUS, LoadStage
from tests.support.load.world import FIRST_DUE, BusiestKey, JobKind, Load

PEAK_RUNS_A_SECOND = 10_000
MAX_WRITE_UNITS, MAX_READ_UNITS = 1_000, 3_000  # of a partition of DynamoDB in a second
PLAYED_SECONDS = FIRST_DUE + 50  # before the next minute is fired
P99_LAG, MAX_LAG = 2.0, 10.0  # seconds from the write of a job state until its row shows it


pytestmark = pytest.mark.timeout(600)  # a minute of processor, beside other tests


@pytest.fixture(scope="module", params=list(JobKind))
def peak(request: pytest.FixtureRequest) -> Load:
    """10,000 runs that are due in one second, played until all lists show them."""
    load = Load(SIZED_FOR_10_000, PEAK_RUNS_A_SECOND, 1, request.param)
    load.play(PLAYED_SECONDS)
    return load


def test_each_run_of_the_second_ends_once(peak: Load) -> None:
    assert peak.functions.sent_runs == PEAK_RUNS_A_SECOND
    assert peak.ended_runs() == PEAK_RUNS_A_SECOND
    assert peak.counted_successes() == PEAK_RUNS_A_SECOND
    assert peak.functions.telemetry.problem_names == []


def test_no_key_takes_over_1000_write_units_a_second(peak: Load) -> None:
    """All units of the play count as one second, as if such a second followed the other."""
    keys = peak.busiest_writes()
    assert {key.kind for key in keys} >= {
        *("jobs: job", "timers", "runs: run", "lists: jobs", "lists: runs", "lists: feed"),
        *("control: counted", "control: uncounted", "control: lease", "control: watermark"),
    }
    assert _over(keys, MAX_WRITE_UNITS) == {}


def test_no_key_takes_over_3000_read_units_a_second(peak: Load) -> None:
    assert _over(peak.busiest_reads(), MAX_READ_UNITS) == {}


def test_lists_lag_under_two_seconds_at_the_peak(peak: Load) -> None:
    lags = Lags(peak.lags)
    assert lags.count >= 2 * PEAK_RUNS_A_SECOND
    assert (lags.p99 <= P99_LAG, lags.longest <= MAX_LAG) == (True, True), lags


@pytest.mark.parametrize("runs_a_second", [3, 60])
def test_lists_lag_under_two_seconds_at_a_usual_load(runs_a_second: int) -> None:
    """A stage as `dev` and `prod` declare it: few records in a batch, which wait for the window."""
    load = Load(LoadStage(), runs_a_second, 20)
    load.play(PLAYED_SECONDS)
    lags = Lags(load.lags)
    assert lags.count >= 40 * runs_a_second
    assert (lags.p99 <= P99_LAG, lags.longest <= MAX_LAG) == (True, True), lags


def test_failed_batches_delay_lists_by_seconds_only() -> None:
    """Each batch of one second fails. Lambda repeats it in halves, and all is shown and counted."""
    load = Load(LoadStage(), 60, 10)

    def fails(role: str, operation: str) -> Exception | None:
        is_bad = FIRST_DUE + 3 <= load.timeline.seconds < FIRST_DUE + 4
        if is_bad and (role, operation) == (STATUS, "batch_write_item"):
            return Unavailable("The table does not answer.")
        return None

    load.tables.fails = fails
    load.play(PLAYED_SECONDS)
    lags = Lags(load.lags)
    assert load.functions.failed_batches > 0
    assert load.counted_successes() == 600
    assert lags.longest <= MAX_LAG, lags


def _over(keys: list[BusiestKey], maximum: float) -> Mapping[str, float]:
    return {key.key: key.units for key in keys if key.units > maximum}
