"""docs/requirements.md answers every requirement, and what it points at exists."""

import re
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from punctual.domain.job_state import JobStatus
from punctual.domain.run import RunStatus
from punctual.engine.commands.jobs import Jobs
from punctual.engine.queries.jobs import JobQueries
from punctual.node.features import NODE_FEATURES
from punctual.web.app import build_routes
from punctual.web.services import Services
from punctual.web.views.system import InstallationInfo

ROOT = Path(__file__).parents[3]
PLACES = (ROOT, ROOT / "layers/core/python/punctual")
PAGE = (ROOT / "docs/requirements.md").read_text()
THREATS = (ROOT / "docs/threat-model.md").read_text()
ROWS_OF = {"S0": 31, "S1": 38, "S2": 24, "S3": 18, "S4": 65}
LATER = ("deployment", "dashboard", "artifacts", "Fargate containers", "WebSocket events")
CALLS = ("curl ", "make bench", "make rehearse", "make acceptance", ".venv", "tests/e2e/")
UNIT_ONLY, NO_CALL = "*Unit test only.*", "*No call.*"
METHOD = re.compile(r"-X ([A-Z]+)")
ADDRESS = re.compile(r"\$API(/[^\s\"'?]*)")
FILE = re.compile(r"[\w./-]+\.(?:py|md)")


class Row(NamedTuple):
    name: str
    requirement: str
    where: str
    shown: str

    @property
    def quoted(self) -> list[str]:
        return re.findall(r"`([^`]+)`", f"{self.where} {self.shown}")


def rows(page: str = PAGE) -> list[Row]:
    cells = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in page.splitlines()]
    return [Row(*row) for row in cells if re.fullmatch(r"S\d-\d\d", row[0])]


def named(pattern: str) -> list[str]:
    return sorted({one for row in rows() for one in row.quoted if re.match(pattern, one)})


def no_log(_event: str, /, **_fields: Any) -> None:
    """Nothing is answered here, so nothing is told."""


def declared() -> set[tuple[str, str]]:
    nothing = cast(Any, None)
    services = Services(
        cast(Jobs, nothing),
        cast(JobQueries, nothing),
        nothing,
        NODE_FEATURES,
        InstallationInfo("0", ()),
        nothing,
    )
    return {
        (one.method, re.sub(r"<\w+>", "*", one.rule))
        for one in build_routes(services, no_log).declared
    }


def test_every_requirement_has_one_row() -> None:
    wanted = [f"{source}-{n:02d}" for source, last in ROWS_OF.items() for n in range(1, last + 1)]
    assert [row.name for row in rows()] == wanted


def is_complete(row: Row) -> bool:
    runs = [one for one in row.quoted if "::" in one or one.startswith(("curl ", "make ", ".venv"))]
    shown = bool(runs) or "Later: " in row.shown or "Departure" in row.shown
    return bool(row.requirement and row.where and shown)


def test_a_row_is_shown_or_later_or_says_why_not() -> None:
    assert [row.name for row in rows() if not is_complete(row)] == []


def mark_of(row: Row) -> str:
    shown = re.findall(r"`([^`]+)`", row.shown)
    tests = [one for one in shown if one.startswith("tests/")]
    calls = [one for one in shown if one.startswith(CALLS)]
    only_unit = all(one.startswith(("tests/unit/", "tests/property/")) for one in tests)
    return "" if calls or not tests else UNIT_ONLY if only_unit else NO_CALL


def test_a_row_without_a_call_is_marked() -> None:
    wrong = []
    for row in rows():
        mark = mark_of(row)
        marks = [one for one in (UNIT_ONLY, NO_CALL) if one in row.shown]
        if not row.shown.startswith(mark) or marks != [mark] * bool(mark):
            wrong.append(f"{row.name}: {mark or 'no mark'} is right")
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("S3-08", "Departure while the store is away: reads and writes answer 503"),
        ("S4-09", "*Not met on AWS* until scale is shown"),
        ("S4-12", "*Not met on AWS* until scale is shown"),
        ("S4-58", "Departure: an object with pages instead of a bare array"),
        ("S4-63", "a second place that takes jobs in would be a second truth"),
    ],
)
def test_a_row_that_is_not_met_as_written_says_so(name: str, said: str) -> None:
    (row,) = [row for row in rows() if row.name == name]
    assert said in row.shown


def test_what_is_later_is_named_as_the_issues_name_it() -> None:
    later = [row for row in rows() if "Later: " in row.shown]
    strange = [
        row.name for row in later if not row.shown.split("Later: ")[1].strip().startswith(LATER)
    ]
    assert later
    assert strange == []


def exists(path: str) -> bool:
    file, _, test = path.partition("::")
    found = [place / file for place in PLACES if (place / file).is_file()]
    if not found or not test:
        return bool(found)
    return bool(re.search(rf"^\s*(?:async )?def {test}\(", found[0].read_text(), re.MULTILINE))


def test_a_file_or_test_that_is_named_exists() -> None:
    paths = named(FILE.pattern + "(?:::|$)")
    assert paths
    assert [path for path in paths if not exists(path)] == []


@pytest.mark.parametrize("command", named("make |\\.venv"))
def test_a_command_that_is_named_exists(command: str) -> None:
    words = command.split()
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert all((ROOT / word.removeprefix("T=")).is_file() for word in words[2:])
    else:
        assert words[:2] == [".venv/bin/python", "-m"]
        assert (ROOT / words[2] / "__main__.py").is_file()


def route_of(call: str) -> tuple[str, str]:
    address = ADDRESS.search(call)
    assert address is not None, call
    method = METHOD.search(call)
    verb = method[1] if method else "POST" if " -d " in call else "GET"
    return verb, re.sub(r"JOB_ID|RUN_ID", "*", address[1])


def test_a_call_that_is_named_has_a_route() -> None:
    calls, routes = named("curl "), declared()
    assert calls
    assert [call for call in calls if route_of(call) not in routes] == []


def test_each_attack_of_the_threat_model_names_a_test_that_exists() -> None:
    attacks = THREATS.partition("## Attacks")[2].partition("\n## ")[0]
    table = [line for line in attacks.splitlines() if line.startswith("| ")][1:]
    assert len(table) > 20
    for line in table:
        named = re.findall(r"`(tests/[^`]+)::(\w+)`", line)
        assert named, f"no test in: {line}"
        for file, test in named:
            text = (ROOT / file).read_text()
            assert re.search(rf"^def {test}\(", text, re.MULTILINE), f"{file}::{test}"


def test_a_row_that_is_missing_or_twice_is_noticed() -> None:
    page = PAGE.replace("| S2-07 |", "| S2-06 |")
    assert [row.name for row in rows(page)] != [row.name for row in rows()]


def test_the_names_of_all_statuses_are_mapped() -> None:
    table = PAGE.partition("## Names of statuses")[2].partition("\n## ")[0]
    ours = " ".join(line.split(" | ")[-1] for line in table.splitlines() if line.startswith("|"))
    missing = {str(one) for one in (*JobStatus, *RunStatus)} - set(re.findall(r"[A-Z_]{4,}", ours))
    assert missing == set()
