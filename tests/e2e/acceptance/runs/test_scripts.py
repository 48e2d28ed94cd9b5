"""Scripts in four languages end alike: streams, exit code, limits, messages, artifacts."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from tests.support.acceptance.contract import Api, Json
from tests.support.acceptance.programs import (
    ENTRIES,
    LANGUAGES,
    SOURCES,
    compiled,
    program_task,
    zip_of,
)

pytestmark = pytest.mark.needs("script")

PAYLOAD = {"a": [1, None], "ü": "é"}
REPORT = {"args": ["report", "a b", "{{payload.ü}}"], "env": {"MINE": "x={{attempt}}"}}
WAITED, HANDED_OVER = 25, 26  # seconds of timeout: on AWS a longer script has a detached runner
WHEEL = zip_of({"greeting/__init__.py": b"TEXT = 'from a wheel'", "greeting/data.txt": b"x"})
WHEEL_MAIN = b"""
import greeting, pkgutil, sibling
print(greeting.TEXT, pkgutil.get_data("greeting", "data.txt").decode(), sibling.TEXT)
"""


class Runs(NamedTuple):
    """The ended runs, by language and case."""

    api: Api
    runs: Mapping[tuple[str, str], Json]

    def of(self, language: str, case: str) -> Json:
        return self.runs[language, case]


@pytest.fixture(scope="module")
def runs(shared: Api, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return the runs of all cases, which run beside each other."""
    binary = compiled(tmp_path_factory.mktemp("program"))
    jobs: dict[tuple[str, str], Json] = {}

    def add(language: str, case: str, task: Json, seconds: int) -> None:
        fields = {"payload": PAYLOAD, "timeout_seconds": seconds, "max_retries": 0}
        jobs[language, case] = {**fields, "task": task}

    for language in LANGUAGES:
        is_binary = language == "binary"  # which has no code to send
        own = shared.upload(binary, "program") if is_binary else ""
        packed = {ENTRIES[language]: binary if is_binary else SOURCES[language].encode()}
        zipped = shared.upload(zip_of(packed), "program.zip")
        limited = {"resources": {"memory_mb": 128}}
        add(language, "alone", program_task(language, "", own, **REPORT), WAITED)
        add(language, "zip", program_task(language, "", zipped, **REPORT), WAITED)
        add(language, "memory", program_task(language, "memory", own, **limited), WAITED)
        add(language, "crash", program_task(language, "crash", own), HANDED_OVER)
        add(language, "timeout", program_task(language, "hang", own), 2)
    files = {
        "main.py": WHEEL_MAIN,
        "sibling.py": b"TEXT = 'from a file'",
        "wheels/greeting-1-py3-none-any.whl": WHEEL,
    }
    wheels = shared.upload(zip_of(files), "wheels.zip")
    add("python", "wheels", program_task("python", "", wheels), HANDED_OVER)
    return Runs(shared, shared.results(jobs))


@pytest.mark.parametrize("case", ["alone", "zip"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_program_gets_all_of_its_run_in_each_language(runs: Runs, language: str, case: str) -> None:
    run = runs.of(language, case)
    lines = [
        '{"a":[1,null],"ü":"é"}',
        "a b|é|x=1",
        run["job_id"],
        run["run_id"],
        "1",
        run["scheduled_time"],
    ]
    assert (run["status"], run["exit_code"]) == ("FAILED", 3), run["error_message"]
    assert run["error_message"] == "Exit code 3\nto the log"
    assert runs.api.output(run).decode() == "".join(f"{line}\n" for line in lines)
    log = runs.api.output(run, "logs").decode()
    assert sorted(log.splitlines()) == sorted([*lines, "to the log"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_memory_is_limited_in_each_language(runs: Runs, language: str) -> None:
    run = runs.of(language, "memory")
    assert (run["status"], run["exit_code"]) == ("FAILED", 137), run["error_message"]
    assert run["error_message"] == (
        "The script used more than 128 MB of memory, the limit of its run: raise "
        "task.resources.memory_mb"
    )
    assert runs.api.output(run) == b"begun\n"


@pytest.mark.parametrize("language", LANGUAGES)
def test_crash_names_its_signal_in_each_language(runs: Runs, language: str) -> None:
    run = runs.of(language, "crash")
    assert (run["status"], run["exit_code"]) == ("FAILED", 139)
    assert run["error_message"] == "Killed by SIGSEGV"
    assert runs.api.output(run) == b"begun\n"


@pytest.mark.parametrize("language", LANGUAGES)
def test_timeout_ends_a_program_in_each_language(runs: Runs, language: str) -> None:
    run = runs.of(language, "timeout")
    assert (run["status"], run["exit_code"]) == ("TIMED_OUT", 143)
    assert run["error_message"] == "Timed out after 2 s"
    assert runs.api.output(run) == b"begun\n"


def test_zip_brings_files_and_wheels(runs: Runs) -> None:
    run = runs.of("python", "wheels")
    assert run["status"] == "SUCCESS", run["error_message"]
    assert runs.api.output(run) == b"from a wheel x from a file\n"
