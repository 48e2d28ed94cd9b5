"""The choice of a sandbox, the tenants that may run scripts in it, and its open paths."""

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

BWRAP_MISSING = "", "bubblewrap is not installed"
BWRAP_PRESENT = "/usr/bin/bwrap", ""


def choose(
    wanted: str, abi: int, bwrap: tuple[str, str], shared: bool = False
) -> tuple[str, int, str]:
    system = SandboxProbes(lambda: abi, lambda _path: bwrap)
    sandbox = choose_sandbox(wanted, Path("/data"), is_shared=shared, probes=system)
    return sandbox.name, sandbox.abi, sandbox.bwrap_path


@pytest.mark.parametrize(
    ("abi", "bwrap", "shared", "name"),
    [
        (7, BWRAP_PRESENT, False, "landlock"),
        (7, BWRAP_MISSING, False, "landlock"),
        (7, BWRAP_PRESENT, True, "bubblewrap"),
        (7, BWRAP_MISSING, True, "landlock"),
        (5, BWRAP_PRESENT, False, "bubblewrap"),
        (5, BWRAP_MISSING, False, "landlock"),
        (5, BWRAP_MISSING, True, "landlock"),
        (0, BWRAP_PRESENT, False, "bubblewrap"),
        (0, BWRAP_MISSING, False, "none"),
        (0, BWRAP_MISSING, True, "none"),
    ],
)
def test_auto_setting_chooses_the_best_present_sandbox(
    abi: int, bwrap: tuple[str, str], shared: bool, name: str
) -> None:
    assert choose("auto", abi, bwrap, shared)[0] == name


def test_named_sandbox_is_chosen_or_an_error() -> None:
    assert choose("landlock", 1, BWRAP_PRESENT) == ("landlock", 1, "")
    assert choose("bubblewrap", 7, BWRAP_PRESENT) == ("bubblewrap", 0, "/usr/bin/bwrap")
    assert choose("none", 7, BWRAP_PRESENT) == ("none", 0, "")
    with pytest.raises(NoSandboxError, match=r"Linux 5\.13"):
        choose("landlock", 0, BWRAP_PRESENT)
    with pytest.raises(NoSandboxError, match="not installed"):
        choose("bubblewrap", 7, BWRAP_MISSING)


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
def test_other_tenants_have_scripts_only_with_isolated_processes(
    sandbox: Sandbox, allowed: bool
) -> None:
    assert (sandbox.refusal_reason("acme") == "") is allowed
    assert sandbox.refusal_reason("local") == ""


def test_open_paths_are_for_tenant_local_only(tmp_path: Path) -> None:
    opened = OpenPath(Path("/srv/a"), False), OpenPath(Path("/srv/b"), True)
    program = (Path("/usr/bin/bash"),)
    names: tuple[SandboxName, ...] = ("landlock", "bubblewrap")
    for name in names:
        sandbox = Sandbox(name, tmp_path, abi=7, bwrap_path="bwrap", open_paths=opened)
        with RunFolder(tmp_path) as folder:
            local_walls = sandbox.for_run("local", folder, program)
            acme_walls = sandbox.for_run("acme", folder, program)
        if name == "bubblewrap":
            text = " ".join(local_walls.wrapper)
            assert "--ro-bind-try /srv/a /srv/a --bind-try /srv/b /srv/b" in text
            assert "/srv/" not in " ".join(acme_walls.wrapper)
        else:
            assert local_walls.rules is not None
            assert acme_walls.rules is not None
            files = dict(local_walls.rules["files"])
            assert (files["/srv/a"], files["/srv/b"]) == (
                landlock.READ_RIGHTS,
                landlock.CHANGE_RIGHTS,
            )
            assert not [path for path, _ in acme_walls.rules["files"] if path.startswith("/srv")]


@pytest.mark.parametrize("name", ["landlock", "bubblewrap"])
def test_only_the_folder_of_the_run_is_writable(tmp_path: Path, name: SandboxName) -> None:
    sandbox = Sandbox(name, tmp_path, abi=7, bwrap_path="bwrap")
    with RunFolder(tmp_path) as folder:
        walls = sandbox.for_run("local", folder, (Path("/usr/bin/bash"),))
        run_folder = str(folder.path)
    rules = walls.rules
    assert rules is not None
    writable = [path for path, rights in rules["files"] if rights & landlock.MAKE_REG]
    bound = [
        walls.wrapper[index + 1]
        for index, word in enumerate(walls.wrapper)
        if word in ("--bind", "--bind-try", "--dev-bind")
    ]
    assert [*writable, *bound][-1:] == [run_folder]
    assert set(bound) <= {run_folder, f"{run_folder}/tmp"}


def test_folder_with_the_data_folder_is_opened_without_it(tmp_path: Path) -> None:
    data = tmp_path / "opt" / "punctual" / "data"
    for name in ("opt/tool/bin", "opt/punctual/code", "opt/punctual/data/work"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "opt" / "link").symlink_to(data)
    opt = tmp_path / "opt"
    assert list(parts_without(opt, data)) == [opt / "punctual" / "code", opt / "tool"]
    assert list(parts_without(opt / "tool", data)) == [opt / "tool"]
    assert list(parts_without(data / "work", data)) == []


def test_program_opens_its_libraries_and_no_other_programs(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    real = tmp_path / "bin" / "node22"
    real.touch()
    link = tmp_path / "node"
    link.symlink_to(real)
    opened = readable_paths((link,), Path("/nowhere"))
    own_paths = [path for path in opened if path.startswith(str(tmp_path))]
    library_folders = [f"{tmp_path}/{name}" for name in ("bin", "lib", "lib64")]
    assert own_paths == [str(link), str(real), *library_folders]


def test_folder_contains_its_paths_under_any_name(tmp_path: Path) -> None:
    data = tmp_path / "a" / "data"
    data.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert contains(tmp_path, data)
    assert contains(tmp_path / "link", data)
    assert contains(data, tmp_path / "link" / "data")
    assert contains(data, data / "not" / "there")
    assert not contains(data, tmp_path)
    assert not contains(tmp_path / "b", data)


def test_all_rights_of_a_landlock_version_are_handled() -> None:
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
