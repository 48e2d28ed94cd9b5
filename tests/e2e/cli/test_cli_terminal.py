"""The program in a terminal: prompts, spinners, progress bars and Ctrl-C."""

import json
import stat
from pathlib import Path

import pytest

from punctual.client import Punctual
from tests.e2e.cli.program import Program

JOBS = "set: s\njobs:\n  - {name: a, schedule_type: INTERVAL, interval_seconds: 60}\n"


def names(client: Punctual) -> list[str]:
    return [job.name for job in client.jobs.list(status="SCHEDULED")]


def test_login_asks_for_the_address_and_hides_the_token(program: Program, node_url: str) -> None:
    fresh = program.with_env(PUNCTUAL_URL=None)
    with fresh.terminal("login") as terminal:
        terminal.until("URL of the API [http://127.0.0.1:8080/v1]: ").types(f"{node_url}\n")
        terminal.until("Token (empty if the node has no tokens): ").types("pnc_secret\n")
        assert terminal.ends() == 0
    assert "Logged in at" in terminal.shown
    assert "pnc_secret" not in terminal.shown
    config = fresh.home / ".config" / "punctual" / "config.json"
    assert json.loads(config.read_text())["profiles"]["default"]["token"] == "pnc_secret"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


def test_apply_declined_with_no_changes_nothing(program: Program, client: Punctual) -> None:
    (program.home / "jobs.yaml").write_text(JOBS)
    with program.terminal("apply", "-f", "jobs.yaml") as terminal:
        terminal.until("Apply these changes? [y/N] ").types("n\n")
        assert terminal.ends() == 4
    assert "Nothing was changed." in terminal.shown
    assert names(client) == []


def test_apply_confirmed_with_yes_changes_jobs(program: Program, client: Punctual) -> None:
    (program.home / "jobs.yaml").write_text(JOBS)
    with program.terminal("apply", "-f", "jobs.yaml") as terminal:
        terminal.until("Apply these changes? [y/N] ").types("y\n")
        assert terminal.ends() == 0
    assert "1 created, 0 changed, 0 cancelled; 0 unchanged." in terminal.shown
    assert names(client) == ["a"]
    assert "\x1b[32m+ create a (set s)" in terminal.raw


@pytest.mark.parametrize("args", [("login",), ("apply", "-f", "jobs.yaml")])
def test_ctrl_c_at_a_prompt_changes_nothing(
    program: Program, client: Punctual, args: tuple[str, ...]
) -> None:
    (program.home / "jobs.yaml").write_text(JOBS)
    with program.terminal(*args) as terminal:
        terminal.until("URL of the API" if args == ("login",) else "[y/N] ").types("\x03")
        assert terminal.ends() == 130
    assert names(client) == []
    assert not (program.home / ".config").exists()


def test_watched_run_continues_after_ctrl_c(program: Program, client: Punctual) -> None:
    program("jobs", "create", "slow", "--every", "1d", "--bash", "sleep 60")
    with program.terminal("jobs", "run", "slow", "--wait") as terminal:
        terminal.until("RUNNING, for ").types("\x03")
        assert terminal.ends() == 130
    assert "The run continues. Follow it with: punctual runs watch" in terminal.shown
    run = next(iter(client.runs.list(client.jobs.get(_only(client)))))
    assert run.status == "RUNNING"
    client.runs.cancel(run)


def _only(client: Punctual) -> str:
    (job,) = client.jobs.list(status="SCHEDULED")
    return job.job_id


def test_slow_command_shows_a_progress_bar(program: Program, client: Punctual) -> None:
    jobs = [
        {"name": f"n-{n}", "schedule_type": "INTERVAL", "interval_seconds": 3600}
        for n in range(150)
    ]
    (program.home / "many.json").write_text(json.dumps(jobs))
    with program.terminal("jobs", "create", "-f", "many.json") as terminal:
        assert terminal.ends() == 0
    assert "Creating jobs" in terminal.shown
    assert "150 of 150 jobs created." in terminal.shown


def test_no_color_is_respected(program: Program) -> None:
    program("jobs", "create", "a", "--every", "5m")
    with program.terminal("jobs", "list", "--status", "scheduled") as terminal:
        assert terminal.ends() == 0
    assert "\x1b[32mSCHEDULED" in terminal.raw
    for quiet in (
        program.terminal("jobs", "list", "--no-color"),
        program.with_env(NO_COLOR="1").terminal("jobs", "list"),
    ):
        with quiet as terminal:
            assert terminal.ends() == 0
        assert "\x1b[32m" not in terminal.raw
        assert "SCHEDULED" in terminal.raw


def test_dev_runs_in_a_terminal_until_ctrl_c(program: Program, tmp_path: Path) -> None:
    with program.terminal("dev", "--port", "0", "--data", str(tmp_path / "data")) as terminal:
        terminal.until("Punctual is ready at").types("\x03")
        assert terminal.ends() == 0
