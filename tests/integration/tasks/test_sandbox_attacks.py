"""A hostile script in each sandbox, as root and as another user."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from punctual.tasks.script import bubblewrap
from tests.support.kernel import needs
from tests.support.scripts import attacks
from tests.support.scripts.other_user import NEEDED, NOBODY, run_python

CODE = Path(attacks.__file__).read_text()
# Landlock has no right for these. Bubblewrap shows the files to no script.
NOT_BY_LANDLOCK = {"change_the_rights_of_a_folder"}
# On a machine with one user a script may call the services of that user.
NOT_ALONE = {"call_a_named_socket"}

as_users = pytest.mark.parametrize("user", ["ours", "nobody"])


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that another user may enter, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="punctual-attacked-"))
    yield path
    shutil.rmtree(path)


def run_attacks(
    folder: Path, sandbox: str, mode: str, user: str, code: str = CODE
) -> dict[str, Any]:
    """Return the outcome of a script that a node of this user runs."""
    if user == "nobody":
        os.chown(folder, NOBODY, NOBODY)
    arguments = ("-m", NEEDED, str(folder / "data"), sandbox, mode)
    output = run_python(user, *arguments, stdin=code, NODES_SECRET="hush")
    outcome: dict[str, Any] = json.loads(output.splitlines()[-1])
    assert outcome["sandbox"] == sandbox
    return outcome


def needs_bubblewrap(path: str = os.environ["PATH"]) -> None:
    _, problem = bubblewrap.find_program(path)
    if problem:
        pytest.skip(problem)


def succeeded_attacks(outcome: dict[str, Any]) -> dict[str, str]:
    assert outcome["status"] == "SUCCESS", outcome
    attacks_run = json.loads(outcome["output"])
    assert attacks_run.keys() == attacks.ATTACKS.keys()
    return {name: answer for name, (succeeded, answer) in attacks_run.items() if succeeded}


@needs("landlock scopes", "seccomp")
@as_users
@pytest.mark.parametrize("mode", ["alone", "shared"])
def test_landlock_stops_attacks_it_has_a_right_for(folder: Path, user: str, mode: str) -> None:
    open_ = NOT_BY_LANDLOCK | (NOT_ALONE if mode == "alone" else set())
    assert succeeded_attacks(run_attacks(folder, "landlock", mode, user)).keys() == open_


@as_users
@pytest.mark.parametrize("mode", ["alone", "shared"])
def test_bubblewrap_stops_every_attack(folder: Path, user: str, mode: str) -> None:
    needs_bubblewrap()
    # The network stays open, so abstract sockets stay reachable.
    open_ = {"call_an_abstract_socket"} if mode == "alone" else set()
    assert succeeded_attacks(run_attacks(folder, "bubblewrap", mode, user)).keys() == open_


def test_attacks_of_root_succeed_without_a_sandbox(folder: Path) -> None:
    """So the attacks of the tests above have a target."""
    if os.geteuid() != 0:
        pytest.skip("only root's script can open what a node hides")
    code = CODE.replace("@attack\ndef slow_all_of_the_user", "def slow_all_of_the_user")
    outcome = run_attacks(folder, "none", "alone", "ours", code)
    attacks_run = json.loads(outcome["output"])
    assert {
        name: answer for name, (succeeded, answer) in attacks_run.items() if not succeeded
    } == {}
    assert attacks_run.keys() == attacks.ATTACKS.keys() - {"slow_all_of_the_user"}


def test_node_hides_its_process_from_its_user_without_a_sandbox(folder: Path) -> None:
    succeeded = succeeded_attacks(run_attacks(folder, "none", "alone", "nobody"))
    hidden = {
        "read_the_key_through_an_open_descriptor",
        "reach_the_key_through_the_folder_of_a_process",
        "read_the_environment",
        "open_the_memory",
        "attach_a_debugger",
        "copy_a_descriptor",
    }
    assert succeeded.keys() & hidden == set()
    assert "read_the_key" in succeeded
