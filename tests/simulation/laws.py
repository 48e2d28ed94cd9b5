"""The rules that always hold, watched at every write and asked of what stands at the end."""

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise

from punctual.domain.head import Head, State
from punctual.domain.notices import told_of
from punctual.domain.run import ENDED, Run, Status, Trigger
from punctual.domain.schedule import Every, Schedule, occurrences
from punctual.engine.ports import Key, RunKey, RunRow, Timer
from tests.simulation.memory import Memory

_INSTANT = timedelta(microseconds=1)
_RANK = {Status.CLAIMED: 1, Status.RUNNING: 2}


class Laws:
    """Raises AssertionError at the write that breaks a rule."""

    def __init__(self) -> None:
        self.ended: dict[RunKey, Run] = {}
        self.segments: dict[Key, list[tuple[Schedule, datetime, datetime | None]]] = {}
        self.begun: Counter[RunKey] = Counter()

    def watch_head(self, old: Head | None, new: Head) -> None:
        if new.blank:
            return
        before = {} if old is None else {run.run_id: run for run in old.runs}
        assert new.version > (0 if old is None else old.version), "versions only grow"
        ids = [run.run_id for run in (*new.runs, *new.ended)]
        ids += [waiting.run_id for waiting in new.line]
        assert len(ids) == len(set(ids)), f"rule 2: a run is there twice: {ids}"
        for run in new.runs:
            self._watch_run(before.get(run.run_id), run, new)
        for waiting in new.line:
            self._not_ended(new, waiting.run_id)
        for run in new.ended:
            self._ends(RunKey(new.tenant, new.job_id, run.run_id), run)
        self._watch_schedule(old, new)

    def _watch_run(self, was: Run | None, run: Run, head: Head) -> None:
        self._not_ended(head, run.run_id)
        if run.held and (was is None or not was.held or was.token != run.token):
            self._watch_claim(was, run, head)
        elif was is not None and run.held and was.held:
            assert run.claimer == was.claimer, "rule 4: the holder of a token changed"
            assert _RANK[run.status] >= _RANK[was.status], "rule 4: a status went back"
        if was is not None:
            assert run.past.startswith(was.past), "rule 4: an attempt was forgotten"

    def _watch_claim(self, was: Run | None, run: Run, head: Head) -> None:
        assert was is not None, "a run is queued before it is held"
        assert not was.held, "rule 2: a run went from one holder to another at once"
        assert was.status is Status.QUEUED, f"rule 5: claimed while {was.status}"
        assert run.token == head.version, "rule 4: the token is the version of the swap"
        assert run.token > was.token, "rule 4: tokens only grow"
        assert run.attempt_at is not None
        assert run.attempt_at >= run.due_at, "rule 6: started early"
        held = sum(other.held for other in head.runs)
        assert held <= head.limits.max_concurrency, "rule 3: more holders than the limit"
        assert head.state is not State.CANCELLED, "rule 5: started after a cancel"
        paused = head.state is State.PAUSED and run.trigger is Trigger.SCHEDULE
        assert not paused or was.begun, "rule 5: started after a pause"
        key = RunKey(head.tenant, head.job_id, run.run_id)
        self.begun[key] += 1
        assert self.begun[key] <= 12, "rule 7: tried without an end"

    def _not_ended(self, head: Head, run_id: str) -> None:
        assert RunKey(head.tenant, head.job_id, run_id) not in self.ended, (
            "rule 2: a run that has its outcome came back"
        )

    def _ends(self, key: RunKey, run: Run) -> None:
        known = self.ended.get(key)
        assert run.status in ENDED
        if known is not None:
            assert (known.status, known.token) == (run.status, run.token), "rule 2: two outcomes"
            assert run.count >= known.count, "rule 2: an entry shrank"
        self.ended[key] = run

    def _watch_schedule(self, old: Head | None, new: Head) -> None:
        """Which schedule was in force from when to when: what it must have on record."""
        assert new.schedule is not None
        key = Key(new.tenant, new.job_id)
        segments = self.segments.setdefault(key, [])
        if old is None or old.blank:
            assert new.schedule is not None
            from_at = min(new.created_at, getattr(new.schedule, "at", new.created_at) - _INSTANT)
            segments.append((new.schedule, from_at, None))
        elif old.schedule != new.schedule:
            self._close(segments, new.updated_at)
            from_at = min(new.updated_at, getattr(new.schedule, "at", new.updated_at) - _INSTANT)
            segments.append((new.schedule, from_at, None))
        if new.state is State.CANCELLED and segments[-1][2] is None:
            self._close(segments, new.updated_at)

    def _close(
        self, segments: list[tuple[Schedule, datetime, datetime | None]], until: datetime
    ) -> None:
        schedule, from_at, _ = segments[-1]
        segments[-1] = (schedule, from_at, until)

    def watch_row(self, old: RunRow | None, new: RunRow) -> None:
        key = RunKey(new.tenant, new.job_id, new.run.run_id)
        assert key in self.ended, "rule 4: a history row for a run that has not ended"
        if old is not None:
            assert old.run.status == new.run.status, "rule 2: two outcomes in the history"
            assert old.run.token == new.run.token, "rule 4: two holders in the history"
            assert not old.detail.output_blob or old.detail.output_blob == new.detail.output_blob, (
                "rule 4: the output changed"
            )

    def at_the_end(self, memory: Memory, now: datetime) -> None:
        """Everything came to its end, and every occurrence has exactly one outcome."""
        for key, stored in memory.heads.rows.items():
            if not stored.head.blank:
                self._ended_well(memory, stored.head, now)
                self._check_ledger(key, stored.head, now)
                self._check_notices(memory, stored.head)
        for run_key, run in self.ended.items():
            row = memory.history.rows.get(run_key)
            assert row is not None, f"rule 2: no history row for {run.run_id} {run.status}"
            assert (row.run.status, row.run.token) == (run.status, run.token)
            assert row.run.count == run.count, "rule 2: the row says another count"
            if run.status is Status.SUCCESS:
                assert row.detail.output_blob.endswith(f"/{run.token}"), (
                    f"rule 4: not the holder's output: {row.detail.output_blob!r} of {run.token}"
                )
        late = [t for t in outstanding(memory) if t.at < now - timedelta(minutes=3)]
        assert not late, f"rule 7: timers that nobody looks at: {late}"
        assert not memory.queue.entries, "rule 7: messages that never go"

    def _check_notices(self, memory: Memory, head: Head) -> None:
        """Of each end that somebody wants to know of there is a notice, and of no other."""
        mine = {key[2]: run for key, run in self.ended.items() if key[1] == head.job_id}
        found = [one for one in memory.notices.notices.values() if one.job_id == head.job_id]
        put = {(one.run_id, one.entry, one.occurrences) for one in found}
        lost = [
            (run.run_id, run.status)
            for run in mine.values()
            for entry in told_of(head.notify, run.status)
            if (run.run_id, entry, run.count) not in put
        ]
        assert not lost, f"nobody is told of {lost}"
        for one in found:
            assert one.run_id in mine, "somebody is told of a run that has not ended"
            assert mine[one.run_id].status is one.status, "somebody is told of another end"
            assert one.entry in told_of(head.notify, one.status), "somebody is told of too much"

    def _ended_well(self, memory: Memory, head: Head, now: datetime) -> None:
        assert not head.runs, f"rule 2: runs that never ended: {head.runs}"
        assert not head.line, f"rule 2: runs that wait for ever: {head.line}"
        assert head.state in (State.COMPLETED, State.CANCELLED), f"the job is {head.state}"
        assert not memory.heads.rows[Key(head.tenant, head.job_id)].leases, "a lease of nobody"

    def _check_ledger(self, key: Key, head: Head, now: datetime) -> None:
        mine = [run for (tenant, job_id, _), run in self.ended.items() if (tenant, job_id) == key]
        scheduled = sorted(
            (run for run in mine if run.trigger is Trigger.SCHEDULE), key=lambda r: r.scheduled_at
        )
        segments = self.segments[key]
        if isinstance(segments[0][0], Every) and segments[0][0].from_completion:
            _check_chain(scheduled, segments[0][0])
            return
        covered: Counter[datetime] = Counter()
        for run in scheduled:
            covered.update(_times(run, [segment[0] for segment in segments]))
        doubled = [str(at) for at, times in covered.items() if times > 1]
        assert not doubled, f"rule 2: two outcomes for {doubled}"
        expected: set[datetime] = set()
        for schedule, from_at, until in segments:
            expected.update(occurrences(schedule, from_at, until or now))
        if head.limits.max_runs is not None:
            expected.clear()  # what comes after the last run is no occurrence
        lost = sorted(str(at) for at in expected - set(covered))
        assert not lost, f"rule 2: no outcome for {lost}"
        clocks_ahead = now + timedelta(seconds=5)
        known = {at for s, f, _ in segments for at in occurrences(s, f, clocks_ahead)}
        invented = sorted(str(at) for at in set(covered) - known)
        assert not invented, f"rule 2: an outcome for what is no occurrence: {invented}"


def outstanding(memory: Memory) -> list[Timer]:
    """Timers still to be looked at; what stands in a minute that is done was put again later."""
    done = memory.buckets.is_done
    return [timer for timer in memory.timers.all() if not done(timer.bucket, timer.shard)]


def _times(run: Run, schedules: list[Schedule]) -> list[datetime]:
    """The occurrences that an entry stands for."""
    if run.count == 1:
        return [run.scheduled_at]
    assert run.last_at is not None
    for schedule in schedules:
        found = list(occurrences(schedule, run.scheduled_at - _INSTANT, run.last_at))
        if len(found) == run.count:
            return found
    raise AssertionError(f"rule 2: {run.count} occurrences from {run.scheduled_at}: not so many")


def _check_chain(runs: list[Run], schedule: Every) -> None:
    for before, after in pairwise(runs):
        assert before.ended_at is not None
        assert after.scheduled_at == before.ended_at + timedelta(seconds=schedule.seconds), (
            "rule 2: an interval from completion lost its count"
        )
