"""Claims that were handed over hold places until their ends, whatever crashes in between.

Executors take places for runs of detached runners and for scripts that they wait for. Ends are told
by a stream, which repeats itself, comes late, and sometimes loses a record for good. Executors die
at each call of the table.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from random import Random

import pytest

from punctual.domain.tenants.limits import TenantLimits
from punctual.engine.ports.quotas import EndedClaim
from punctual.engine.ports.tenants.quota_rows import QuotaRow
from punctual.engine.quotas.claim_places import SCRIPT_PLACES_LIMIT, ClaimPlaces
from punctual.engine.quotas.run_permits import PLACE_LEASE_SECONDS, Handover, RunPermits
from tests.support.builders import ManualClock
from tests.support.simulation.instances import NOON, EventLog, MemoryQuotaRows, no_log

FUNCTION, PLACES = "script-bash", 5
TIMEOUT_SECONDS, MARGIN_SECONDS = 60, 300
STREAM_SECONDS = 3.0
SECONDS = 400


class Died(Exception):
    """The process is gone. It is not an error that its code could catch."""


class MortalRows:
    """The rows as one executor sees them. It may die before or after each write."""

    def __init__(self, rows: MemoryQuotaRows, random: Random, death_rate: float) -> None:
        self._rows = rows
        self._random = random
        self._death_rate = death_rate

    def read(self, tenant: str, row_name: str) -> QuotaRow | None:
        return self._rows.read(tenant, row_name)

    def swap(self, tenant: str, row_name: str, expect: int, text: str) -> QuotaRow | None:
        self._may_die()
        present = self._rows.swap(tenant, row_name, expect, text)
        self._may_die()
        return present

    def _may_die(self) -> None:
        if self._random.random() < self._death_rate:
            raise Died


class Fleet:
    """Executors that start scripts of one function, and the function that follows the stream."""

    def __init__(self, seed: int, death_rate: float = 0.0, lost_rate: float = 0.0) -> None:
        self.clock = ManualClock(NOON)
        self.random = Random(seed)
        self.rows = MemoryQuotaRows()
        self.lost_rate = lost_rate
        self._death_rate = death_rate
        self.claim_places = ClaimPlaces(self.rows, self.clock, {FUNCTION: PLACES}, has_limits=True)
        self.detached: dict[str, float] = {}  # the ends of detached runs, by nonce
        self.waited: list[tuple[float, RunPermits]] = []
        self.records: list[tuple[float, str]] = []  # when the stream tells the end of a nonce
        self.executors = [self._start() for _ in range(8)]

    @property
    def seconds(self) -> float:
        return (self.clock() - NOON).total_seconds()

    @property
    def running(self) -> int:
        return len(self.detached) + len(self.waited)

    @property
    def used(self) -> int:
        return self.claim_places.used_places(FUNCTION)

    def _start(self) -> RunPermits:
        limits = TenantLimits(concurrent_runs=PLACES)
        return RunPermits(
            lambda _: limits,
            MortalRows(self.rows, self.random, self._death_rate),
            f"{self.random.getrandbits(48):012x}",
            self.clock,
            no_log,
            places_limit=SCRIPT_PLACES_LIMIT,
        )

    def step(self, starts: bool = True) -> None:
        self.clock.set(self.clock() + timedelta(seconds=0.5))
        self._end_runs()
        self._follow_stream()
        for place in range(len(self.executors)):
            try:
                self._use(self.executors[place], starts)
            except Died:
                dead = self.executors[place]
                self.waited = [entry for entry in self.waited if entry[1] is not dead]
                self.executors[place] = self._start()

    def _use(self, executor: RunPermits, starts: bool) -> None:
        if executor.needs_renewal:
            executor.renew_places()
        if all(holder is not executor for _, holder in self.waited):
            executor.return_idle_places()
        if not starts or self.random.random() < 0.7:
            return
        if self.random.random() < 0.5:
            if executor.request(FUNCTION, 1).number:
                self.waited.append((self.seconds + self.random.uniform(0.5, 25), executor))
            return
        nonce = f"claim-{self.random.getrandbits(64)}"
        longest = timedelta(seconds=TIMEOUT_SECONDS + MARGIN_SECONDS)
        handover = executor.hand_over(FUNCTION, nonce, longest, has_permit=False)
        if handover is Handover.MOVED:
            self.detached[nonce] = self.seconds + self.random.uniform(0, TIMEOUT_SECONDS)

    def _end_runs(self) -> None:
        for ended_at, executor in [entry for entry in self.waited if entry[0] <= self.seconds]:
            self.waited.remove((ended_at, executor))
            executor.end_permit(FUNCTION, started=True)
        for nonce in [nonce for nonce, end in self.detached.items() if end <= self.seconds]:
            del self.detached[nonce]
            if self.random.random() >= self.lost_rate:
                self.records.append((self.seconds + self.random.uniform(0, STREAM_SECONDS), nonce))

    def _follow_stream(self) -> None:
        due = [record for record in self.records if record[0] <= self.seconds]
        self.records = [record for record in self.records if record[0] > self.seconds]
        if due:
            self.claim_places.free(EndedClaim("acme", nonce, True) for _, nonce in due)
            self.records += [(self.seconds + 1, nonce) for _, nonce in due[:1] if self._repeats()]

    def _repeats(self) -> bool:
        return self.random.random() < 0.3


def played(fleet: Fleet) -> Iterator[Fleet]:
    while fleet.seconds < SECONDS:
        fleet.step()
        yield fleet


@pytest.mark.parametrize("death_rate", [0.0, 0.02], ids=["", "dying"])
@pytest.mark.parametrize("seed", range(12))
def test_scripts_that_run_are_at_most_the_places(seed: int, death_rate: float) -> None:
    peaks = [state.running for state in played(Fleet(seed, death_rate, lost_rate=0.05))]
    assert max(peaks) <= PLACES
    assert max(peaks) == PLACES, "and all of them are used"


@pytest.mark.parametrize("seed", range(12))
def test_all_places_are_free_soon_after_the_last_end(seed: int) -> None:
    """The stream tells the end of each claim, and idle executors give their places back."""
    fleet = Fleet(seed, death_rate=0.0)
    for _ in played(fleet):
        pass
    while fleet.running:
        fleet.step(starts=False)
    ended = fleet.seconds
    while fleet.seconds < ended + PLACE_LEASE_SECONDS + STREAM_SECONDS:
        fleet.step(starts=False)
    assert fleet.used == 0


@pytest.mark.parametrize("seed", range(12))
def test_places_of_lost_ends_are_free_at_the_end_of_the_longest_run(seed: int) -> None:
    """Executors die between a claim and its run, and the stream loses each second end."""
    fleet = Fleet(seed, death_rate=0.05, lost_rate=0.5)
    for _ in played(fleet):
        pass
    fleet.clock.set(fleet.clock() + timedelta(seconds=TIMEOUT_SECONDS + MARGIN_SECONDS + 60))
    assert fleet.used == 0
    with suppress(Died):
        assert fleet.executors[0].request(FUNCTION, 1).number == 1


def test_repeated_end_frees_no_place_of_another_claim() -> None:
    fleet = Fleet(1)
    longest = timedelta(seconds=TIMEOUT_SECONDS)
    for nonce in ("one", "two"):
        fleet.executors[0].hand_over(FUNCTION, nonce, longest, has_permit=False)
    for _ in range(3):
        fleet.claim_places.free([EndedClaim("acme", "one", True)])
    assert fleet.used == 1


def test_end_that_frees_nothing_writes_nothing() -> None:
    fleet = Fleet(1)
    fleet.claim_places.free([EndedClaim("acme", "unknown", True)])
    assert fleet.rows.counts == {"reads": 2}, "the row of the tenant, and that of the function"


def test_row_of_a_hundred_claims_stays_small() -> None:
    rows = MemoryQuotaRows()
    clock = ManualClock(NOON)
    executor = RunPermits(
        lambda _: TenantLimits(concurrent_runs=100), rows, "0" * 12, clock, no_log
    )
    for number in range(100):
        longest = timedelta(seconds=30 * (number % 30))
        assert executor.hand_over("acme", f"{number}", longest, False) is Handover.MOVED
    assert executor.hand_over("acme", "another", timedelta(0), False) is Handover.REFUSED
    (row,) = rows.rows.values()
    assert len(row.text) < 1_024


def test_permit_moves_to_the_claim_with_one_write() -> None:
    rows, clock = MemoryQuotaRows(), ManualClock(NOON)
    limits = TenantLimits(concurrent_runs=1)
    one, other = (
        RunPermits(lambda _: limits, rows, name * 12, clock, no_log) for name in ("1", "2")
    )
    assert one.request("acme", 1).number == 1
    written = rows.counts["writes"]
    longest = timedelta(hours=1)
    assert one.hand_over("acme", "claim", longest) is Handover.MOVED
    assert rows.counts["writes"] == written + 1
    for seconds in (0, 60, 3_000):
        clock.set(NOON + timedelta(seconds=seconds))
        assert (one.request("acme", 1).number, other.request("acme", 1).number) == (0, 0)
    ClaimPlaces(rows, clock, {}, has_limits=True).free([EndedClaim("acme", "claim", False)])
    clock.set(clock() + timedelta(seconds=5))
    assert other.request("acme", 1).number == 1


def test_run_of_a_tenant_without_a_limit_is_not_counted() -> None:
    rows, clock = MemoryQuotaRows(), ManualClock(NOON)
    executor = RunPermits(lambda _: TenantLimits(), rows, "1" * 12, clock, no_log)
    assert executor.hand_over("acme", "claim", timedelta(0)) is Handover.UNCOUNTED
    assert rows.counts == {}


def test_busy_executor_writes_once_in_fifteen_seconds_for_scripts_that_it_waits_for() -> None:
    rows, clock = MemoryQuotaRows(), ManualClock(NOON)
    limits = TenantLimits(concurrent_runs=PLACES)
    executor = RunPermits(
        lambda _: limits, rows, "1" * 12, clock, no_log, places_limit=SCRIPT_PLACES_LIMIT
    )
    for second in range(120):
        clock.set(NOON + timedelta(seconds=second))
        if executor.needs_renewal:
            executor.renew_places()
        if second % 5 == 0:
            executor.end_permit(FUNCTION, started=True)
            assert executor.request(FUNCTION, 1).number == 1
    assert rows.counts["writes"] <= 1 + 120 / 15


def test_run_starts_uncounted_while_the_row_does_not_answer() -> None:
    """The limit is open then, as for runs that are not handed over. Lambda's own limit holds."""
    rows, clock, log = MemoryQuotaRows(), ManualClock(NOON), EventLog()
    limits = TenantLimits(concurrent_runs=1)
    executor = RunPermits(lambda _: limits, rows, "1" * 12, clock, log)
    rows.away = True
    handover = executor.hand_over("acme", "claim", timedelta(minutes=1), has_permit=False)
    assert handover is Handover.UNCOUNTED
    assert log.events == ["limits_unavailable"]


def test_run_waits_if_other_executors_win_each_swap() -> None:
    class ContendedRows(MemoryQuotaRows):
        def swap(self, tenant: str, row_name: str, expect: int, text: str) -> QuotaRow | None:
            return QuotaRow("", expect + 1)

    limits = TenantLimits(concurrent_runs=1)
    executor = RunPermits(lambda _: limits, ContendedRows(), "1" * 12, ManualClock(NOON), no_log)
    handover = executor.hand_over("acme", "claim", timedelta(minutes=1), has_permit=False)
    assert handover is Handover.REFUSED
