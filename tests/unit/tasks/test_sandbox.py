"""Which sandbox is chosen, who may have scripts in it, and what it opens."""

import os
from pathlib import Path

import pytest

from punctual.tasks.script import landlock
from punctual.tasks.script.run_folder import RunFolder
from punctual.tasks.script.sandbox import (
    NoSandboxError,
    OpenPath,
    Sandbox,
    SandboxName,
    SandboxProbes,
    choose_sandbox,
)
from punctual.tasks.script.system_paths import contains, parts_without, readable_paths

MISSING = "", "bubblewrap is not installed"
THERE = "/usr/bin/bwrap", ""


def chosen(
    wanted: str, abi: int, bwrap: tuple[str, str], shared: bool = False
) -> tuple[str, int, str]:
    system = SandboxProbes(lambda: abi, lambda _path: bwrap)
    sandbox = choose_sandbox(wanted, Path("/data"), is_shared=shared, probes=system)
    return sandbox.name, sandbox.abi, sandbox.bwrap_path


@pytest.mark.parametrize(
    ("abi", "bwrap", "shared", "name"),
    [
        (7, THERE, False, "landlock"),
        (7, MISSING, False, "landlock"),
        (7, THERE, True, "bubblewrap"),
        (7, MISSING, True, "landlock"),
        (5, THERE, False, "bubblewrap"),
        (5, MISSING, False, "landlock"),
        (5, MISSING, True, "landlock"),
        (0, THERE, False, "bubblewrap"),
        (0, MISSING, False, "none"),
        (0, MISSING, True, "none"),
    ],
)
def test_auto_takes_the_best_there_is(
    abi: int, bwrap: tuple[str, str], shared: bool, name: str
) -> None:
    assert chosen("auto", abi, bwrap, shared)[0] == name


def test_a_named_sandbox_is_that_or_an_error() -> None:
    assert chosen("landlock", 1, THERE) == ("landlock", 1, "")
    assert chosen("bubblewrap", 7, THERE) == ("bubblewrap", 0, "/usr/bin/bwrap")
    assert chosen("none", 7, THERE) == ("none", 0, "")
    with pytest.raises(NoSandboxError, match=r"Linux 5\.13"):
        chosen("landlock", 0, THERE)
    with pytest.raises(NoSandboxError, match="not installed"):
        chosen("bubblewrap", 7, MISSING)


@pytest.mark.parametrize(
    ("sandbox", "allowed"),
    [
        (Sandbox("none", is_shared=True), False),
        (Sandbox("landlock", abi=5, is_shared=True), False),
        (Sandbox("landlock", abi=6, is_shared=True), True),
        (Sandbox("bubblewrap", is_shared=True), True),
        (Sandbox("none", is_shared=False), True),
    ],
)
def test_other_tenants_have_scripts_only_where_processes_are_kept_apart(
    sandbox: Sandbox, allowed: bool
) -> None:
    assert (sandbox.refusal_reason("acme") == "") is allowed
    assert sandbox.refusal_reason("local") == ""


def test_the_setting_opens_paths_to_tenant_local_only(tmp_path: Path) -> None:
    opened = OpenPath(Path("/srv/a"), False), OpenPath(Path("/srv/b"), True)
    program = (Path("/usr/bin/bash"),)
    names: tuple[SandboxName, ...] = ("landlock", "bubblewrap")
    for name in names:
        sandbox = Sandbox(name, tmp_path, abi=7, bwrap_path="bwrap", open_paths=opened)
        with RunFolder(tmp_path) as folder:
            ours = sandbox.for_run("local", folder, program)
            others = sandbox.for_run("acme", folder, program)
        if name == "bubblewrap":
            text = " ".join(ours.wrapper)
            assert "--ro-bind-try /srv/a /srv/a --bind-try /srv/b /srv/b" in text
            assert "/srv/" not in " ".join(others.wrapper)
        else:
            assert ours.rules is not None
            assert others.rules is not None
            files = dict(ours.rules["files"])
            assert (files["/srv/a"], files["/srv/b"]) == (
                landlock.READ_RIGHTS,
                landlock.CHANGE_RIGHTS,
            )
            assert not [path for path, _ in others.rules["files"] if path.startswith("/srv")]


@pytest.mark.parametrize("name", ["landlock", "bubblewrap"])
def test_only_the_runs_own_folder_can_be_written(tmp_path: Path, name: SandboxName) -> None:
    sandbox = Sandbox(name, tmp_path, abi=7, bwrap_path="bwrap")
    with RunFolder(tmp_path) as folder:
        walls = sandbox.for_run("local", folder, (Path("/usr/bin/bash"),))
        own = str(folder.path)
    rules = walls.rules
    assert rules is not None
    writable = [path for path, rights in rules["files"] if rights & landlock.MAKE_REG]
    bound = [
        walls.wrapper[index + 1]
        for index, word in enumerate(walls.wrapper)
        if word in ("--bind", "--bind-try", "--dev-bind")
    ]
    assert [*writable, *bound][-1:] == [own]
    assert set(bound) <= {own, f"{own}/tmp"}


def test_a_folder_that_holds_the_data_is_opened_around_it(tmp_path: Path) -> None:
    data = tmp_path / "opt" / "punctual" / "data"
    for name in ("opt/tool/bin", "opt/punctual/code", "opt/punctual/data/work"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "opt" / "link").symlink_to(data)
    opt = tmp_path / "opt"
    assert list(parts_without(opt, data)) == [opt / "punctual" / "code", opt / "tool"]
    assert list(parts_without(opt / "tool", data)) == [opt / "tool"]
    assert list(parts_without(data / "work", data)) == []


def test_a_program_brings_its_libraries_and_not_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    real = tmp_path / "bin" / "node22"
    real.touch()
    link = tmp_path / "node"
    link.symlink_to(real)
    opened = readable_paths((link,), Path("/nowhere"))
    mine = [path for path in opened if path.startswith(str(tmp_path))]
    beside = [f"{tmp_path}/{name}" for name in ("bin", "lib", "lib64")]
    assert mine == [str(link), str(real), *beside]


def test_a_folder_holds_what_lies_in_it_by_any_name(tmp_path: Path) -> None:
    data = tmp_path / "a" / "data"
    data.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert contains(tmp_path, data)
    assert contains(tmp_path / "link", data)
    assert contains(data, tmp_path / "link" / "data")
    assert contains(data, data / "not" / "there")
    assert not contains(data, tmp_path)
    assert not contains(tmp_path / "b", data)


def test_all_rights_of_a_version_are_handled() -> None:
    assert [landlock.deniable_rights(abi).bit_length() for abi in range(1, 8)] == [
        13,
        14,
        15,
        15,
        16,
        16,
        16,
    ]
    assert os.O_PATH
