"""The table of allowed imports, the modules that may read the clock, and planted violations."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
OURS = "layers/core/python/punctual"

ALLOWED: dict[str, frozenset[str]] = {
    f"{OURS}/__init__.py": frozenset(),
    f"{OURS}/settings.py": frozenset(),
    f"{OURS}/identity.py": frozenset({"punctual.domain"}),
    f"{OURS}/domain": frozenset({"msgspec", "tzdata"}),
    f"{OURS}/engine/ports": frozenset({"punctual.domain", "msgspec"}),
    f"{OURS}/engine": frozenset({"punctual.domain", "msgspec"}),
    f"{OURS}/tasks": frozenset(
        {
            "punctual.domain",
            "punctual.engine.execution.executor",
            "punctual.engine.ports",
            "httpx",
            "httpcore",
            "msgspec",
        }
    ),
    f"{OURS}/runner": frozenset({"punctual.domain", "punctual.engine.ports", "punctual.tasks"}),
    f"{OURS}/node": frozenset(
        {
            "punctual.domain",
            "punctual.engine",
            "punctual.tasks",
            "punctual.web",
            "punctual.auth",
            "punctual.identity",
            "punctual.settings",
            "cryptography",
            "msgspec",
            "uvicorn",
            "uvloop",
        }
    ),
    f"{OURS}/aws": frozenset(
        {
            "punctual.domain",
            "punctual.engine",
            "punctual.tasks",
            "punctual.settings",
            "boto3",
            "botocore",
            "msgspec",
        }
    ),
    f"{OURS}/web": frozenset(
        {
            "punctual.domain",
            "punctual.engine",
            "punctual.settings",
            "pydantic",
            "pydantic_core",
            "aws_lambda_powertools",
            "msgspec",
        }
    ),
    f"{OURS}/lambdas": frozenset(
        {
            "punctual.domain",
            "punctual.engine",
            "punctual.tasks",
            "punctual.aws",
            "punctual.web",
            "punctual.auth",
            "punctual.identity",
            "punctual.settings",
            "aws_lambda_powertools",
            "msgspec",
        }
    ),
    f"{OURS}/auth": frozenset({"punctual.domain", "punctual.engine", "jwt", "cryptography"}),
    f"{OURS}/client": frozenset({"punctual.settings", "httpx", "msgspec"}),
    "cli": frozenset(
        {
            "punctual.client",
            "punctual.domain",
            "punctual.node",
            "punctual.settings",
            "punctual.web",
            "punctual_cli",
            "click",
            "croniter",
            "httpx",
            "msgspec",
            "rich",
            "typer",
            "yaml",
        }
    ),
    "functions": frozenset({"aws_lambda_powertools", "punctual"}),
    "infra": frozenset(
        {
            "aws_cdk",
            "boto3",
            "botocore",
            "constructs",
            "cdk_nag",
            "punctual.settings",
            "punctual.auth",
            "punctual.domain.artifacts",
            "punctual.domain.tenants.limits",
            "punctual.domain.tenants.tokens",
            "punctual.domain.tenants.webhooks",
            "punctual.tasks.container.task_report",
            "punctual.tasks.http.addresses",
            "punctual.tasks.limits",
            "punctual.tasks.reach",
            "punctual.engine.commands.audit",
            "punctual.engine.ports.audit_log",
            "punctual.aws.dynamodb.audit",
            "punctual.aws.dynamodb.client",
            "punctual.aws.dynamodb.keys",
            "punctual.aws.dynamodb.lists.keys",
            "punctual.aws.dynamodb.lists.operation_rows",
            "punctual.aws.dynamodb.control.artifacts",
            "punctual.aws.dynamodb.control.limits",
            "punctual.aws.dynamodb.control.counters",
            "punctual.aws.dynamodb.timers.rows",
            "punctual.aws.dynamodb.control.tokens",
            "punctual.aws.ecs.containers",
            "punctual.aws.ecs.task_definitions",
            "punctual.aws.ports",
            "punctual.aws.secret_store",
            "punctual.lambdas.containers.settings",
            "punctual.lambdas.containers.start_files",
            "punctual.lambdas.ssm_secrets",
            "punctual.lambdas.telemetry",
            "punctual.web.contract",
        }
    ),
}
"""The imports that a package may have besides the standard library and itself."""

IMPURE = frozenset({"asyncio", "random", "secrets", "socket", "sqlite3", "subprocess", "threading"})
"""The modules of the standard library that the domain must not import."""

AMBIENT = (
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "os.urandom",
    "random.",
    "secrets.",
    "time.monotonic",
    "time.perf_counter",
    "time.sleep",
    "time.time",
    "uuid.uuid1",
    "uuid.uuid4",
)
"""Time, chance and waiting are arguments. A trailing dot stands for the whole module."""

AMBIENT_IN = (
    f"{OURS}/node/",
    f"{OURS}/identity.py",
    f"{OURS}/aws/ports.py",
    f"{OURS}/client/clock.py",
    f"{OURS}/runner/wiring.py",
    "functions/",
)
"""The places that pass them in."""


class Named(NamedTuple):
    """A dotted name that a file imports or uses, and its line."""

    dotted: str
    line: int


def imported(tree: ast.AST) -> Iterator[Named]:
    """Yield every import of a file, a relative one with its dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Named(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            yield from (Named(f"{source}.{alias.name}", node.lineno) for alias in node.names)


def within(dotted: str, package: str) -> bool:
    return dotted == package or dotted.startswith(f"{package}.")


def table_row(path: str) -> str | None:
    return next((row for row in ALLOWED if path == row or path.startswith(f"{row}/")), None)


def own_package(path: str) -> str:
    """Return the package of a file, which the file may import."""
    if path.startswith("functions/"):
        return "functions." + path.split("/")[1]
    if path.startswith("cli/"):
        return "punctual_cli"
    if path.startswith("infra/"):
        return "infra"
    if path.startswith(f"{OURS}/engine/ports/"):
        return "punctual.engine.ports"
    return ".".join(path.removeprefix("layers/core/python/").split("/")[:2]).removesuffix(".py")


def wrong_imports(path: str, source: str) -> list[str]:
    """Return the imports of the file at `path` that the table forbids."""
    row = table_row(path)
    if row is None:
        return [f"{path}: no row in the table"]
    allowed = set(ALLOWED[row]) | {own_package(path)}
    faults = []
    for dotted, line in imported(ast.parse(source)):
        root = dotted.split(".")[0]
        if root in sys.stdlib_module_names:
            wrong = row == f"{OURS}/domain" and root in IMPURE
        else:
            wrong = not any(within(dotted, package) for package in allowed)
        if wrong:
            faults.append(f"{path}:{line}: {dotted}")
    return faults


def _aliases(tree: ast.AST) -> dict[str, str]:
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                aliases[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return aliases


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, aliases)
        return owner and f"{owner}.{node.attr}"
    return None


def ambient_uses(path: str, source: str) -> list[str]:
    """Return the uses of real time, chance or sleep in a file, called or passed on."""
    if path.startswith(AMBIENT_IN):
        return []
    tree = ast.parse(source)
    aliases = _aliases(tree)
    uses = {
        Named(dotted, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
        and (dotted := _dotted(node, aliases))
        and dotted.startswith(AMBIENT)
    }
    return [f"{path}:{line}: {dotted}" for dotted, line in sorted(uses, key=lambda use: use.line)]


def sources(*trees: str) -> list[str]:
    return sorted(
        str(path.relative_to(ROOT)) for tree in trees for path in (ROOT / tree).rglob("*.py")
    )


def test_file_imports_only_what_its_row_allows() -> None:
    paths = sources(OURS, "functions", "infra", "cli")
    assert [line for path in paths for line in wrong_imports(path, (ROOT / path).read_text())] == []


def test_time_and_chance_are_arguments() -> None:
    paths = sources(OURS)
    assert [line for path in paths for line in ambient_uses(path, (ROOT / path).read_text())] == []


def test_check_has_files() -> None:
    assert f"{OURS}/domain/errors.py" in sources(OURS)


@pytest.mark.parametrize(
    ("path", "source", "wrong"),
    [
        ("domain/job.py", "import boto3", "boto3"),
        ("domain/job.py", "import croniter", "croniter"),
        ("domain/job.py", "def f():\n    from punctual.engine import look", "punctual.engine.look"),
        ("domain/job.py", "import random", "random"),
        ("engine/look.py", "from punctual import aws", "punctual.aws"),
        ("engine/look.py", "from ..domain import job", "..domain.job"),
        ("engine/ports/blobs.py", "import punctual.engine.queries", "punctual.engine.queries"),
        (
            "tasks/http/task.py",
            "from punctual.engine.look import look",
            "punctual.engine.look.look",
        ),
        ("tasks/http/task.py", "import punctual.engine", "punctual.engine"),
        ("node/node.py", "import punctual.aws.dynamodb.keys", "punctual.aws.dynamodb.keys"),
        ("aws/dynamodb/client.py", "import pydantic.fields", "pydantic.fields"),
        ("web/routes.py", "import httpx, msgspec", "httpx"),
        ("settings.py", "from punctual.domain import job", "punctual.domain.job"),
    ],
)
def test_planted_import_is_found(path: str, source: str, wrong: str) -> None:
    faults = wrong_imports(f"{OURS}/{path}", source)
    assert [line.rsplit(": ", 1)[1] for line in faults] == [wrong]


def test_handler_may_not_import_another_handler() -> None:
    assert wrong_imports("functions/api/handler.py", "from functions.planner import handler") != []


def test_file_outside_the_table_is_found() -> None:
    assert wrong_imports(f"{OURS}/extra/thing.py", "") == [
        f"{OURS}/extra/thing.py: no row in the table"
    ]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "domain/job.py",
            "import enum\nfrom msgspec import Struct\nfrom punctual.domain import run",
        ),
        (
            "tasks/http/task.py",
            "from punctual.engine import ports\nfrom punctual.engine.ports import X",
        ),
        (
            "aws/dynamodb/client.py",
            "import boto3.dynamodb.conditions\nfrom punctual.settings import Settings",
        ),
    ],
)
def test_allowed_import_passes(path: str, source: str) -> None:
    assert wrong_imports(f"{OURS}/{path}", source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time as t\nt.monotonic_ns()",
        "from time import perf_counter\nperf_counter()",
        "import datetime\ndatetime.datetime.now(datetime.UTC)",
        "from datetime import datetime as dt\nclock = dt.now",
        "from uuid import uuid4\nuuid4()",
        "import random\nrandom.random()",
    ],
)
def test_planted_clock_is_found(source: str) -> None:
    assert len(ambient_uses(f"{OURS}/engine/look.py", source)) == 1
    assert ambient_uses(f"{OURS}/node/node.py", source) == []


def test_clock_that_is_an_argument_passes() -> None:
    source = (
        "from datetime import datetime\ndef look(now: datetime, clock):\n    return clock() - now"
    )
    assert ambient_uses(f"{OURS}/engine/look.py", source) == []
