"""docs/requirements.md answers every requirement, and the files and tests it names exist."""

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


def quoted_names(pattern: str) -> list[str]:
    return sorted({quoted for row in rows() for quoted in row.quoted if re.match(pattern, quoted)})


def no_log(_event: str, /, **_fields: Any) -> None:
    """Log nothing, because no request is answered here."""


def declared_routes() -> set[tuple[str, str]]:
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
        (route.method, re.sub(r"<\w+>", "*", route.rule))
        for route in build_routes(services, no_log).declared
    }


def test_every_requirement_has_one_row() -> None:
    wanted = [
        f"{source}-{number:02d}"
        for source, last in ROWS_OF.items()
        for number in range(1, last + 1)
    ]
    assert [row.name for row in rows()] == wanted


def is_complete(row: Row) -> bool:
    runs = [
        quoted
        for quoted in row.quoted
        if "::" in quoted or quoted.startswith(("curl ", "make ", ".venv"))
    ]
    shown = bool(runs) or "Later: " in row.shown or "Departure" in row.shown
    return bool(row.requirement and row.where and shown)


def test_row_is_shown_or_later_or_a_departure() -> None:
    assert [row.name for row in rows() if not is_complete(row)] == []


def expected_mark(row: Row) -> str:
    shown = re.findall(r"`([^`]+)`", row.shown)
    tests = [quoted for quoted in shown if quoted.startswith("tests/")]
    calls = [quoted for quoted in shown if quoted.startswith(CALLS)]
    only_unit = all(quoted.startswith(("tests/unit/", "tests/property/")) for quoted in tests)
    return "" if calls or not tests else UNIT_ONLY if only_unit else NO_CALL


def test_row_without_a_call_is_marked() -> None:
    wrong = []
    for row in rows():
        mark = expected_mark(row)
        marks = [known_mark for known_mark in (UNIT_ONLY, NO_CALL) if known_mark in row.shown]
        if not row.shown.startswith(mark) or marks != [mark] * bool(mark):
            wrong.append(f"{row.name}: {mark or 'no mark'} is right")
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("S3-08", "Departure without the store: reads and writes answer 503"),
        ("S4-09", "*Not met on AWS* until scale is measured"),
        ("S4-12", "*Not met on AWS* until scale is measured"),
        ("S4-58", "Departure: an object with pages instead of an array"),
        ("S4-63", "A second store of new jobs could contradict the first"),
    ],
)
def test_row_that_is_not_met_says_so(name: str, text: str) -> None:
    (row,) = [row for row in rows() if row.name == name]
    assert text in row.shown


def test_later_part_has_the_name_of_its_issue() -> None:
    later = [row for row in rows() if "Later: " in row.shown]
    unknown = [
        row.name for row in later if not row.shown.split("Later: ")[1].strip().startswith(LATER)
    ]
    assert later
    assert unknown == []


def exists(path: str) -> bool:
    file, _, test = path.partition("::")
    files = [place / file for place in PLACES if (place / file).is_file()]
    if not files or not test:
        return bool(files)
    return bool(re.search(rf"^\s*(?:async )?def {test}\(", files[0].read_text(), re.MULTILINE))


def test_named_file_or_test_exists() -> None:
    paths = quoted_names(FILE.pattern + "(?:::|$)")
    assert paths
    assert [path for path in paths if not exists(path)] == []


@pytest.mark.parametrize("command", quoted_names("make |\\.venv"))
def test_named_command_exists(command: str) -> None:
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


def test_named_call_has_a_route() -> None:
    calls, routes = quoted_names("curl "), declared_routes()
    assert calls
    assert [call for call in calls if route_of(call) not in routes] == []


def test_attack_of_the_threat_model_names_an_existing_test() -> None:
    attacks = THREATS.partition("## Attacks")[2].partition("\n## ")[0]
    table = [line for line in attacks.splitlines() if line.startswith("| ")][1:]
    assert len(table) > 20
    for line in table:
        quoted_names = re.findall(r"`(tests/[^`]+)::(\w+)`", line)
        assert quoted_names, f"no test in: {line}"
        for file, test in quoted_names:
            text = (ROOT / file).read_text()
            assert re.search(rf"^def {test}\(", text, re.MULTILINE), f"{file}::{test}"


def test_missing_or_repeated_row_is_noticed() -> None:
    page = PAGE.replace("| S2-07 |", "| S2-06 |")
    assert [row.name for row in rows(page)] != [row.name for row in rows()]


def test_all_statuses_are_mapped() -> None:
    table = PAGE.partition("## Names of statuses")[2].partition("\n## ")[0]
    mapped = " ".join(line.split(" | ")[-1] for line in table.splitlines() if line.startswith("|"))
    missing = {str(status) for status in (*JobStatus, *RunStatus)} - set(
        re.findall(r"[A-Z_]{4,}", mapped)
    )
    assert missing == set()
