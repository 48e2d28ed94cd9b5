"""Ports that fail at a chosen call: before it, after it, in part, or by a repeat."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, cast

from punctual.domain.errors import Unavailable
from punctual.engine.ports.job_states import Swap
from tests.support.ports import Ports

if TYPE_CHECKING:
    from punctual.aws.ports import AwsPorts

AnyPorts = TypeVar("AnyPorts", Ports, "AwsPorts")

READS = frozenset(
    {
        "load",
        "load_definitions",
        "page",
        "upcoming",
        "scheduled_states",
        "walk",
        "due",
        "find_existing",
        "recorded_keys",
        "get",
        "attempts",
        "find_result",
        "recent_runs",
        "link",
        "watermark",
        "shard_count",
        "is_done",
        "valid_leases",
        "find",
        "uses",
    }
)


class Crash(BaseException):
    """The process crashes. Its code must not catch this."""


class FaultKind(StrEnum):
    BEFORE = "before"
    AFTER = "after"  # takes effect, but the answer is lost
    PREFIX = "prefix"  # only the first half of the batch takes effect
    TWICE = "twice"  # repeated by a retry within the adapter, which must be harmless
    REFUSED = "refused"  # the queue answers that it did not accept the messages
    STALL_BEFORE = "stall before"  # the process stops while the world continues
    STALL_AFTER = "stall after"


class Fault(NamedTuple):
    call: int  # number of the counted call, from 1
    kind: FaultKind
    crash: bool = False  # otherwise the port is unavailable
    seconds: float = 0  # duration of a stall

    def __str__(self) -> str:
        kwargs = (
            "crash" if self.crash else f"stall {self.seconds}" if self.seconds else "unavailable"
        )
        return f"{self.kind}/{kwargs} at {self.call}"


class Partition(NamedTuple):
    """For some of its calls, a process does not reach a port, or gets no answers from it."""

    process: str
    port: str  # empty for all ports
    first: int  # the first of these calls of the process to this port, counted from 1
    call_count: int
    answers_lost: bool  # whether the calls take effect

    def __str__(self) -> str:
        kind = "answers lost" if self.answers_lost else "not reached"
        return f"{self.process} to {self.port or 'all'}: {kind} at {self.first}+{self.call_count}"

    def cuts(self, call: "Call", number: int, number_at_port: int) -> bool:
        """Return whether it cuts a call, by its number and its number at this port."""
        number = number_at_port if self.port else number
        return (
            call.process == self.process
            and self.port in ("", call.port)
            and self.first <= number < self.first + self.call_count
        )


class Call(NamedTuple):
    process: str
    port: str
    method: str
    size: int

    @property
    def may_be_refused(self) -> bool:
        return self.method == "send" or self.port == "notifications"

    @property
    def reads(self) -> bool:
        return self.method in READS


def fault_kinds(call: Call) -> list[tuple[FaultKind, bool]]:
    """Return every way in which this call may fail, as (kind, crash)."""
    kinds = [(FaultKind.BEFORE, True), (FaultKind.BEFORE, False)]
    if not call.reads:
        kinds += [(FaultKind.AFTER, True), (FaultKind.AFTER, False)]
        if call.size > 1:
            kinds += [(FaultKind.PREFIX, True), (FaultKind.PREFIX, False)]
        if call.may_be_refused:
            kinds.append((FaultKind.REFUSED, False))
    return kinds


@dataclass
class Plan:
    """Counts the calls of all processes, and applies the planned faults."""

    faults: tuple[Fault, ...] = ()
    # wait until a call takes effect, and return the time it takes after that
    begin: Callable[[], float] = lambda: 0
    sleep: Callable[[float], None] = lambda seconds: None
    partitions: tuple[Partition, ...] = ()

    def __post_init__(self) -> None:
        self.calls: list[Call] = []
        self.on = True
        self.cut_calls = 0
        self._call_counts: Counter[tuple[str, str]] = Counter()  # by process and port
        self._by_call = {fault.call: fault for fault in self.faults}

    def run(self, call: Call, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if not self.on:
            return real(*args)
        self.calls.append(call)
        fault = self._by_call.get(len(self.calls))
        partition = self._partition_at(call)
        after = self.begin()
        if partition is not None:
            self._cut(partition, call, real, args)
        answer = real(*args) if fault is None else self._break(fault, call, real, args)
        if after:
            self.sleep(after)
        return answer

    def _partition_at(self, call: Call) -> Partition | None:
        if not self.partitions:
            return None
        self._call_counts[call.process, ""] += 1
        self._call_counts[call.process, call.port] += 1
        number = self._call_counts[call.process, ""]
        number_at_port = self._call_counts[call.process, call.port]
        return next((p for p in self.partitions if p.cuts(call, number, number_at_port)), None)

    def _cut(
        self, partition: Partition, call: Call, real: Callable[..., Any], args: tuple[Any, ...]
    ) -> NoReturn:
        self.cut_calls += 1
        if partition.answers_lost:
            real(*args)
        raise Unavailable(f"{call.port}.{call.method} is behind a partition")

    def _break(
        self, fault: Fault, call: Call, real: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        answer = None
        if fault.kind is FaultKind.STALL_BEFORE:
            self.sleep(fault.seconds)
            return real(*args)
        if fault.kind is FaultKind.REFUSED and call.may_be_refused:
            return [False] * call.size
        if fault.kind is FaultKind.PREFIX:
            real(args[0][: call.size // 2], *args[1:])
        elif fault.kind is not FaultKind.BEFORE:
            answer = real(*args)
        if fault.kind is FaultKind.TWICE:
            return real(*args)
        if fault.kind is FaultKind.STALL_AFTER:
            self.sleep(fault.seconds)
            return answer
        if fault.crash:
            raise Crash(f"{call.process} at {call.port}.{call.method}")
        raise Unavailable(f"{call.port}.{call.method} did not answer")


class _PortWithFaults:
    """One port of one process."""

    def __init__(self, plan: Plan, process: str, port: str, real: Any) -> None:
        self._plan = plan
        self._process = process
        self._port = port
        self._real = real

    def __getattr__(self, method: str) -> Callable[..., Any]:
        real = getattr(self._real, method)

        def call(*args: Any, **kwargs: Any) -> Any:
            size = len(args[0]) if args and isinstance(args[0], list | tuple) else 1
            if args and hasattr(args[0], "_fields"):
                size = 1
            return self._plan.run(
                Call(self._process, self._port, method, size), partial(real, **kwargs), args
            )

        return call


def port_with_faults(port: Any, plan: Plan, process: str, name: str) -> Any:
    return _PortWithFaults(plan, process, name, port)


def with_faults(ports: AnyPorts, plan: Plan, process: str) -> AnyPorts:
    """Return the same stores, as one process reaches them."""
    wrapped = {
        name: _PortWithFaults(plan, process, name, port) for name, port in vars(ports).items()
    }
    return replace(ports, **cast(Any, wrapped))


REPEATABLE = frozenset(
    {
        "put",
        "put_runs",
        "put_many",
        "put_attempts",
        "put_results",
        "put_definitions",
        "delete",
        "swap",
        "replace",
        "renew_leases",
        "send",
        "claim",
        "advance_watermark",
        "raise_shard_count",
        "renew",
        "mark_done",
    }
)


class Repeating(Plan):
    """A plan that repeats every call that an adapter's retry may repeat.

    It returns the second answer.
    """

    def run(self, call: Call, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        unmarked = call.method == "swap" and (
            call.port == "operations" or _unmarked(args[0])  # their swaps carry no write id
        )
        if call.method in REPEATABLE and not unmarked:
            real(*args)
        return super().run(call, real, args)


def _unmarked(swaps: Sequence[Swap]) -> bool:
    """Return True if a swap has no write id, so a repeat cannot recognise its own write."""
    return not all(any(swap.state.write_ids[-1:]) for swap in swaps)
