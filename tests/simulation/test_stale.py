"""What is read at a glance may be old, for long: it leads to a swap that loses, and to nothing."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from punctual.domain.durations import LEASE
from punctual.domain.errors import LaterVersion
from punctual.domain.run import Reason, RunStatus
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.rows import TEXT, Detail, Key
from punctual.engine.ports.run_queue import Message
from punctual.engine.ports.timers import Timer
from tests.simulation.hand import NOON, Hand, a_finish
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.seeds import share
from tests.simulation.test_faults import broken_by, cut_off
from tests.simulation.torn import Plan, torn

STRIDE = 23
LAGS = (2.0, 90.0, 1e6)
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.name for one in SCENARIOS])


@every_scenario
def test_however_old_a_glance_is_no_rule_is_broken(scenario: Scenario) -> None:
    for lag in LAGS:
        for seed in range(2):
            past = scenario.play(lag=lag, seed=seed).memory.heads.past
            assert lag < LAGS[-1] or past.stale == past.glances, "all were old"


@every_scenario
def test_faults_among_old_glances_break_no_rule(scenario: Scenario) -> None:
    calls = scenario.play(lag=LAGS[1]).plan.calls
    broken = broken_by(scenario, calls, share(list(cut_off(calls)), STRIDE), lag=LAGS[1])
    assert not broken, f"{len(broken)} of {len(calls)} calls: {broken[:5]}"


class Stale(Hand):
    """Glances see the heads as `remember` found them."""

    def __init__(self) -> None:
        super().__init__()
        self.old: Mapping[Key, StoredState] = {}
        self.glances = 0
        self._load = self.memory.heads.load
        self.memory.heads.load = self._read  # type: ignore[method-assign]

    def remember(self) -> None:
        self.old = dict(self.memory.heads.rows)

    def _read(self, keys: Sequence[Key], glance: bool = False) -> Mapping[Key, StoredState]:
        self.glances += glance
        if not glance:
            return self._load(keys)
        return {key: self.old[key] for key in keys if key in self.old}

    def glance(self, *timers: Timer) -> None:
        """A look at these, or all that is due, as a poller on AWS has it."""
        due = [timer for timer in self.timers() if timer.at <= self.now]
        Evaluator(self.steps(), self.new_id, glance=True).look(timers or due)


def statuses(hand: Hand, key: Key) -> list[RunStatus]:
    return [run.status for run in hand.head(key).runs]


def test_an_old_head_that_has_nothing_to_do_takes_no_timer_away() -> None:
    hand = Stale()
    key = hand.submit(schedule_type="CRON", cron_expression="* * * * *")
    hand.jobs.pause(*key)
    hand.remember()
    (timer,) = hand.timers()
    hand.jobs.resume(*key)
    hand.wait(60)
    hand.glance(timer)
    assert statuses(hand, key) == [RunStatus.QUEUED], "the pause that it saw is over"
    assert hand.message().due_at == NOON + timedelta(seconds=60)


def test_a_job_that_is_not_to_be_seen_yet_is_looked_at_and_holds_no_place() -> None:
    hand = Stale()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:01:00Z")
    hand.wait(60)
    hand.glance()
    assert not hand.head(key).blank
    assert statuses(hand, key) == [RunStatus.QUEUED]
    assert hand.timers() == []


def test_what_was_paused_meanwhile_is_not_fired() -> None:
    hand = Stale()
    key = hand.submit(schedule_type="CRON", cron_expression="* * * * *")
    hand.remember()
    hand.jobs.pause(*key)
    hand.wait(60)
    hand.glance()
    assert hand.glances == 1
    assert statuses(hand, key) == []
    assert hand.memory.queue.entries == []


def test_an_old_lease_ends_nobody_and_leaves_no_row() -> None:
    hand = Stale()
    key = hand.submit()
    held = hand.claim()
    claim = (key, held.run.run_id, held.run.token)
    hand.executor().beat([claim], first=True)
    hand.remember()
    hand.now += LEASE - timedelta(seconds=1)
    hand.executor().beat([claim])
    hand.wait(8)
    assert hand.now > NOON + LEASE, "by the old lease it is over"
    hand.glance()
    assert hand.memory.history.attempt_rows == {}
    (run,) = hand.head(key).runs
    assert (run.status, run.past) == (RunStatus.RUNNING, "")
    assert [timer for timer in hand.timers() if timer.version == held.run.token], "watched still"


def test_who_has_lost_its_claim_is_found_out_though_a_glance_cannot_tell() -> None:
    hand = Stale()
    key = hand.submit()
    held = hand.claim()
    hand.executor().beat([(key, held.run.run_id, held.run.token)], first=True)
    hand.remember()
    hand.wait(60)
    hand.glance()
    (run,) = hand.head(key).runs
    assert (run.status, run.past) == (RunStatus.QUEUED, "L")


def test_what_nobody_can_read_at_a_glance_is_read_again() -> None:
    hand = Stale()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:01:00Z")
    read = hand.memory.heads.load

    def later(keys: Sequence[Key], glance: bool = False) -> Mapping[Key, StoredState]:
        if glance:
            raise LaterVersion("It was, and is ours again.")
        return read(keys)

    hand.memory.heads.load = later  # type: ignore[method-assign]
    hand.wait(60)
    hand.glance()
    assert statuses(hand, key) == [RunStatus.QUEUED]


def told(message: Message) -> dict[Key, object]:
    assert message.head is not None
    return {Key(message.tenant, message.job_id): message.head}


def claimed(hand: Hand, message: Message, name: str = "e1") -> tuple[int, int, list[str]]:
    """How many were granted and settled, and the reads of heads that it took."""
    plan = Plan()
    executor = hand.executor(name, torn(hand.memory.ports, plan, name))
    handed = executor.claim([message], known=told(message))  # type: ignore[arg-type]
    reads = [call.method for call in plan.calls if call.method == "load"]
    return len(handed.granted), len(handed.settled), reads


def test_a_claim_begins_with_the_head_that_its_message_tells() -> None:
    hand = Hand()
    key = hand.submit()
    assert claimed(hand, hand.message()) == (1, 0, [])
    assert statuses(hand, key) == [RunStatus.RUNNING]


def test_a_message_is_believed_by_one_of_two() -> None:
    hand = Hand()
    hand.submit()
    message = hand.message()
    assert claimed(hand, message, "e1")[0] == 1
    assert claimed(hand, message, "e2")[0] == 0


def test_what_was_cancelled_since_it_was_sent_does_not_start() -> None:
    hand = Hand()
    key = hand.submit()
    message = hand.message()
    hand.jobs.cancel(*key)
    granted, settled, reads = claimed(hand, message)
    assert (granted, settled) == (0, 1)
    assert reads, "who lost has read"
    assert hand.laws.ended[next(iter(hand.laws.ended))].reason is Reason.CANCELLED


def test_that_a_run_is_gone_is_not_believed() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    before = hand.head(key)
    hand.jobs.run_now(*key)
    assert claimed(hand, hand.message()._replace(head=before))[0] == 1
    assert statuses(hand, key) == [RunStatus.RUNNING]


def test_of_two_runs_alive_no_message_tells_the_head() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="CRON", cron_expression="0 0 * * *", max_concurrency=2)
    hand.jobs.run_now(*key)
    hand.jobs.run_now(*key)
    heads = [entry.message.head for entry in hand.memory.queue.entries]
    assert heads[0] is not None
    assert heads[1] is None


def in_line(hand: Hand, detail: Detail) -> Key:
    """One has ended and left this; the next is let in by that, and its message waits."""
    key = hand.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    hand.jobs.run_now(*key)
    hand.jobs.run_now(*key)
    hand.executor().finish([a_finish(hand.claim(), RunStatus.SUCCESS)._replace(detail=detail)])
    assert statuses(hand, key) == [RunStatus.QUEUED]
    assert len(hand.memory.queue.entries) == 2
    return key


def test_what_a_run_answered_is_in_no_message() -> None:
    for detail, is_told in ((Detail(output=b"42", output_type=TEXT), False), (Detail(), True)):
        hand = Hand()
        key = in_line(hand, detail)
        assert hand.head(key).ended[0].note == (detail.output or b"").decode()
        assert (hand.memory.queue.entries[-1].message.head is not None) is is_told


def test_a_row_outlives_what_it_was_made_of_though_the_next_claim_comes_a_week_late() -> None:
    hand = Hand()
    left = Detail(output=b"<p>", output_type="text/html", http_status=200)
    key = in_line(hand, left)
    hand.now += timedelta(days=8)
    hand.memory.history.attempt_rows.clear()  # what has expired is removed
    assert claimed(hand, hand.memory.queue.entries[-1].message)[0] == 1
    (row,) = hand.memory.history.rows.values()
    assert row.detail == left
    assert hand.head(key).ended == ()


def test_ended_runs_do_not_pile_up_however_long_their_rows_are_not_to_be_seen() -> None:
    hand = Hand()
    hand.memory.history.past.lag = timedelta(days=1e4)
    key = hand.submit(schedule_type="CRON", cron_expression="* * * * *")
    most = []
    for minute in range(1, 9):
        hand.now = NOON + timedelta(minutes=minute)
        hand.look(*[timer for timer in hand.timers() if timer.at <= hand.now])
        (assignment,) = hand.executor().claim([hand.memory.queue.entries[-1].message]).granted
        hand.executor().finish([a_finish(assignment, RunStatus.SUCCESS)])
        most.append(len(hand.head(key).ended))
    assert hand.memory.history.past.stale > 0
    assert max(most) <= 2
    assert len(hand.memory.history.rows) == 8
