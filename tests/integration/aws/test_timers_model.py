"""Timers on AWS against a set: any order of puts, deletes, restarts and lost answers."""

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from punctual.aws.dynamodb.timers.rows import TimerRowCache
from punctual.domain.errors import Unavailable
from punctual.engine.ports.timers import Timer, Timers
from tests.support.aws.timer_processes import FOREVER
from tests.support.aws.timer_table import Fault, TimerTable
from tests.support.builders import NOON, a_timer, after, an_id

TENANT = "t" * 200  # so that three of them fill a row
TIMERS = [
    a_timer(after(second), an_id(job), version, tenant=TENANT)
    for second in (1, 2)
    for job in range(6)
    for version in (1, 2)
]
timer_lists = st.lists(st.sampled_from(TIMERS), min_size=1, max_size=9, unique=True)
faults = st.lists(st.sampled_from(Fault), max_size=5)
processes = st.integers(0, 1)
CALL = st.integers(0, 4)


class Model(RuleBasedStateMachine):
    """`must` has the timers that were put and not deleted. More may exist, which is harmless."""

    def __init__(self) -> None:
        super().__init__()
        self.table = TimerTable()
        self.processes = [self.table.process() for _ in range(2)]
        self.ample = [True, True]
        self.must: set[Timer] = set()
        self.puts: list[list[Timer]] = []

    def teardown(self) -> None:
        """Delete all timers that are read. No row may remain."""
        last = self.table.process()
        timers = read(last)
        assert self.must <= timers <= set(TIMERS)
        last.delete(sorted(timers))
        assert self.table.rows == {}

    @rule(process=processes, timers=timer_lists, faults=faults)
    def put(self, process: int, timers: list[Timer], faults: list[Fault]) -> None:
        self.table.faults = list(faults)
        try:
            self.processes[process].put(timers)
            self.must.update(timers)
            self.puts.append(timers)
        except Unavailable:
            assert len(faults) >= 4, "the adapter gives up after four tries"
        self.table.faults = []

    @precondition(lambda self: self.puts)
    @rule(process=processes, which=st.integers(0, 9), cut=st.integers(0, 8))
    def put_the_same_while_another_is_half_through(
        self, process: int, which: int, cut: int
    ) -> None:
        """The second put needs its own row, because the first process caches its own row."""
        timers = self.puts[which % len(self.puts)]
        self.processes[process].delete(timers[:cut])
        self.processes[1 - process].put(timers)
        self.must.update(timers)
        self.processes[process].delete(timers[cut:])
        self.must.difference_update(timers[cut:])

    @rule(
        timers=timer_lists,
        others=timer_lists,
        put=st.booleans(),
        others_put=st.booleans(),
        call=CALL,
    )
    def two_at_once(
        self, timers: list[Timer], others: list[Timer], put: bool, others_put: bool, call: int
    ) -> None:
        """One process works before one of the calls of the other process."""
        first, second = self.processes

        def meanwhile() -> None:
            (second.put if others_put else second.delete)(others)

        self.table.meanwhile = [None] * call + [meanwhile]
        (first.put if put else first.delete)(timers)
        if self.table.meanwhile:
            self.table.meanwhile = []
            meanwhile()
        works = ((timers, put), (others, others_put))
        self.must.update(timer for batch, is_put in works if is_put for timer in batch)
        self.must.difference_update(*(batch for batch, is_put in works if not is_put))

    @rule(process=processes, timers=timer_lists, faults=faults)
    def delete(self, process: int, timers: list[Timer], faults: list[Fault]) -> None:
        """A timer that another process put again may stay."""
        self.table.faults = list(faults)
        try:
            self.processes[process].delete(timers)
        except Unavailable:
            assert faults
        self.table.faults = []
        self.must.difference_update(timers)

    @rule(process=processes, timers=timer_lists)
    def read_and_delete(self, process: int, timers: list[Timer]) -> None:
        """A process without a row in its cache leaves that row."""
        read(self.processes[process])
        self.processes[process].delete(timers)
        self.must.difference_update(timers)
        if self.ample[process]:
            assert not read(self.table.process()).intersection(timers)

    @rule(timers=timer_lists)
    def delete_in_a_process_that_knows_nothing(self, timers: list[Timer]) -> None:
        self.table.process().delete(timers)
        self.must.difference_update(timers)
        assert not read(self.table.process()).intersection(timers)

    @rule(process=processes, limit=st.integers(1, 9))
    def read_all(self, process: int, limit: int) -> None:
        assert self.must <= read(self.processes[process], limit) <= set(TIMERS)

    @rule(process=processes)
    def look_for_each(self, process: int) -> None:
        present = {(timer.at, timer.key) for timer in read(self.table.process())}
        standing = self.processes[process].find_existing(TIMERS)
        assert standing == {timer for timer in TIMERS if (timer.at, timer.key) in present}

    @rule(process=processes, max_timers=st.sampled_from([1, 4, 1_000]))
    def restart(self, process: int, max_timers: int) -> None:
        self.processes[process] = self.table.process(TimerRowCache(max_timers))
        self.ample[process] = max_timers >= len(TIMERS)


def read(timers: Timers, limit: int = 5) -> set[Timer]:
    due_timers: list[Timer] = []
    page: Sequence[Timer]
    cursor, unread = None, True
    while unread:
        page, cursor, _ = timers.due(NOON, 0, FOREVER, cursor, limit)
        due_timers += page
        unread = cursor is not None
    moments = [timer.at for timer in due_timers]
    assert moments == sorted(moments)
    return set(due_timers)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
