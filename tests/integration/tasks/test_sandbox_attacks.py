"""A hostile script in each sandbox, as root and as another user: what it gets, and what not."""

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
# What Landlock has no right for; bubblewrap shows these files to no script.
NOT_BY_LANDLOCK = {"change_the_rights_of_a_folder"}
# Between people of one machine: alone, a script may call the services of its own user.
NOT_ALONE = {"call_a_named_socket"}

as_users = pytest.mark.parametrize("user", ["ours", "nobody"])


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user may enter, unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="punctual-attacked-"))
    yield made
    shutil.rmtree(made)


def played(folder: Path, sandbox: str, mode: str, user: str, code: str = CODE) -> dict[str, Any]:
    """The outcome of a script that a node of this user runs."""
    if user == "nobody":
        os.chown(folder, NOBODY, NOBODY)
    arguments = ("-m", NEEDED, str(folder / "data"), sandbox, mode)
    told = run_python(user, *arguments, said=code, NODES_SECRET="hush")
    outcome: dict[str, Any] = json.loads(told.splitlines()[-1])
    assert outcome["sandbox"] == sandbox
    return outcome


def needs_bubblewrap(path: str = os.environ["PATH"]) -> None:
    _, problem = bubblewrap.find_program(path)
    if problem:
        pytest.skip(problem)


def what_succeeded(outcome: dict[str, Any]) -> dict[str, str]:
    assert outcome["status"] == "SUCCESS", outcome
    found = json.loads(outcome["output"])
    assert found.keys() == attacks.ATTACKS.keys()
    return {name: said for name, (succeeded, said) in found.items() if succeeded}


@needs("landlock scopes", "seccomp")
@as_users
@pytest.mark.parametrize("mode", ["alone", "shared"])
def test_landlock_stops_every_attack_it_has_a_right_for(folder: Path, user: str, mode: str) -> None:
    open_ = NOT_BY_LANDLOCK | (NOT_ALONE if mode == "alone" else set())
    assert what_succeeded(played(folder, "landlock", mode, user)).keys() == open_


@as_users
@pytest.mark.parametrize("mode", ["alone", "shared"])
def test_bubblewrap_stops_every_attack(folder: Path, user: str, mode: str) -> None:
    needs_bubblewrap()
    # In a network of its own no abstract socket would be there, but the network stays open.
    open_ = {"call_an_abstract_socket"} if mode == "alone" else set()
    assert what_succeeded(played(folder, "bubblewrap", mode, user)).keys() == open_


def test_without_a_sandbox_the_attacks_of_root_succeed(folder: Path) -> None:
    """So the tests above attack what is there to be had."""
    if os.geteuid() != 0:
        pytest.skip("only root's script can open what a node hides")
    code = CODE.replace("@attack\ndef slow_all_of_the_user", "def slow_all_of_the_user")
    outcome = played(folder, "none", "alone", "ours", code)
    found = json.loads(outcome["output"])
    assert {name: said for name, (succeeded, said) in found.items() if not succeeded} == {}
    assert found.keys() == attacks.ATTACKS.keys() - {"slow_all_of_the_user"}


def test_a_node_hides_from_its_user_without_a_sandbox_too(folder: Path) -> None:
    succeeded = what_succeeded(played(folder, "none", "alone", "nobody"))
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
