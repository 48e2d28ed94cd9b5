"""One decision reads the clock once.

The tests check which modules hold a clock, and how often a function reads it.

Two readings in one decision disagree when a call between them is slow. So the modules that decide,
and those that apply a decision, hold no clock. They take the time as an argument.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "layers/core/python/punctual"
PACKAGES = ("domain", "engine", "tasks", "node", "aws", "lambdas", "web", "auth")
CLOCKS = {"clock", "_clock", "clocks", "_clocks", "Clock", "Clocks", "StoreClock"}

# Of these packages only these modules may name a clock. `changes/apply` reads it once for each
# round of decisions. The others read it once for each call of a client or of the engine's loop.
HOLDERS = {
    "domain": set[str](),
    "tasks": set[str](),
    "engine": {
        "clock",
        "dispatch/on_demand/held_messages",
        "execution/claims",
        "execution/executor",
        "commands/jobs",
        "quotas/claim_places",
        "quotas/container_quota",
        "quotas/leased_quotas",
        "quotas/run_permits",
        "quotas/leased_window",
        "quotas/limits",
        "commands/runs",
        "changes/timer_placement",
        "ports/clock",
        "dispatch/reconciler",
        "queries/job_list",
        "queries/jobs",
        "changes/apply",
        "commands/submit",
        "commands/tokens",
        "commands/artifacts",
        "commands/artifact_cleanup",
        "operations/commands",
    },
}

# Functions that read it several times, for separate decisions or to measure a duration.
REPEATED_READINGS = {
    "aws/dynamodb/lists/change_feed.py:_write": "measures a write; a slow one is written again",
    "engine/changes/apply.py:apply": "each round is a decision of its own",
    "engine/changes/timer_placement.py:put": "measures a put; a slow one chooses its minutes again",
    "node/node.py:step": "each stage of a step is a decision of its own",
    "lambdas/poller/handler.py:_take_partitions": "each place is a decision of its own",
    "lambdas/poller/handler.py:_work": "a loop that waits between its decisions",
    "lambdas/reconciler/handler.py:run": "a loop that ends when its time is over",
}
# Parameters that hold the time of a decision.
TIME_PARAMETERS = {"now", "begun", "asked_at"}


def readings(function: ast.AST) -> Iterator[tuple[ast.Call, bool]]:
    """Yield each call that reads a clock, and whether it is in a loop."""

    def walk(node: ast.AST, in_loop: bool) -> Iterator[tuple[ast.Call, bool]]:
        for child in ast.iter_child_nodes(node):
            child_in_loop = in_loop or _repeats(node, child)
            if isinstance(child, ast.Call) and _reads(child):
                yield child, child_in_loop
            yield from walk(child, child_in_loop)

    yield from walk(function, False)


def _repeats(node: ast.AST, child: ast.AST) -> bool:
    if isinstance(node, ast.For | ast.AsyncFor):
        return child is not node.iter
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return child is not node.generators[0]
    return isinstance(node, ast.While)


def _reads(call: ast.Call) -> bool:
    called = call.func
    if isinstance(called, ast.Attribute) and called.attr == "read":
        owner = called.value
        return (isinstance(owner, ast.Attribute) and owner.attr in CLOCKS) or (
            isinstance(owner, ast.Name) and owner.id in CLOCKS
        )
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in {"clock", "_clock", "real_clock", "wall"} and not call.args


def wrong_readings(path: str, source: str) -> list[str]:
    faults = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        calls = list(readings(node))
        if not calls or f"{path}:{node.name}" in REPEATED_READINGS:
            continue
        function_name = f"{path}:{node.lineno} {node.name}"
        if len(calls) > 1 or any(in_loop for _, in_loop in calls):
            faults.append(f"{function_name} reads the clock more than once")
        time_parameters = TIME_PARAMETERS & {
            argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)
        }
        if time_parameters:
            faults.append(
                f"{function_name} reads the clock, and is given "
                f"{', '.join(sorted(time_parameters))}"
            )
    return faults


def wrong_holder(path: str, source: str) -> list[str]:
    package, _, module = path.removesuffix(".py").partition("/")
    if package not in HOLDERS or module in HOLDERS[package]:
        return []
    named = sorted(
        name for node in ast.walk(ast.parse(source)) for name in _named(node) if name in CLOCKS
    )
    return [f"{path} names {name}" for name in named]


def _named(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.alias):
        return [node.name.rpartition(".")[2], node.asname or ""]
    return []


FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
)


def test_check_has_files() -> None:
    assert "domain/decide.py" in FILES


def test_function_reads_the_clock_once_or_takes_the_time() -> None:
    assert [
        line for path in FILES for line in wrong_readings(path, (ROOT / path).read_text())
    ] == []


def test_deciding_module_holds_no_clock() -> None:
    assert [line for path in FILES for line in wrong_holder(path, (ROOT / path).read_text())] == []


def test_tables_name_only_existing_modules_and_functions() -> None:
    for package, modules in HOLDERS.items():
        for module in modules:
            assert wrong_holder(f"{package}/x.py", (ROOT / package / f"{module}.py").read_text())
    for place in REPEATED_READINGS:
        path, _, function = place.partition(":")
        calls = [
            len(list(readings(node)))
            for node in ast.walk(ast.parse((ROOT / path).read_text()))
            if isinstance(node, ast.FunctionDef) and node.name == function
        ]
        assert sum(calls) > 0, place


@pytest.mark.parametrize(
    "source",
    [
        "def f(self):\n    a = self._clock()\n    return self._clock() - a",
        "def f(self):\n    begun = self._clocks.read()\n    return clock()",
        "def f(self):\n    for one in []:\n        g(self._clock())",
        "def f(self):\n    while self._clock() < until: pass",
        "def f(self):\n    return [clock() for _ in range(3)]",
        "def f(self, now):\n    return self._steps.clocks.read()",
        "def f(self, begun):\n    return lambda: self._api.clock()",
    ],
)
def test_planted_second_reading_is_found(source: str) -> None:
    assert len(wrong_readings("engine/commands/jobs.py", source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from punctual.engine.ports.clock import Clock",
        "from punctual.engine.clock import Clocks as Time",
        "def decide(head, clock): pass",
        "def f(self):\n    return self._steps.clocks",
    ],
)
@pytest.mark.parametrize(
    "path", ["engine/changes/round.py", "engine/changes/plan.py", "domain/decide.py"]
)
def test_planted_clock_in_a_deciding_module_is_found(path: str, source: str) -> None:
    assert wrong_holder(path, source) != []


@pytest.mark.parametrize(
    "source",
    [
        "def f(self):\n    for one in due(self._clock()): pass",
        "def f(self):\n    return [one for one in due(self._clock())]",
        "def f(self):\n    now = self._clock()\n    return now, self._steady(), self._steady()",
        "def f(self, now):\n    return now",
    ],
)
def test_single_reading_passes(source: str) -> None:
    assert wrong_readings("engine/commands/jobs.py", source) == []
