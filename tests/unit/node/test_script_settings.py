"""The settings of scripts on the node. A wrong one stops the start with advice."""

import sys
from pathlib import Path

import pytest

from punctual.node.script_settings import ScriptSettings, WrongSettingError, search_path
from punctual.tasks.script.sandbox import OpenPath


def settings(data: Path, paths: str, **env: str) -> ScriptSettings:
    return ScriptSettings.from_env({"PUNCTUAL_SCRIPT_PATHS": paths, **env}, data)


def test_default_settings_choose_the_sandbox_and_open_no_path(tmp_path: Path) -> None:
    assert ScriptSettings.from_env({}, tmp_path) == ScriptSettings("auto", ())


def test_open_paths_are_for_reading_or_writing(tmp_path: Path) -> None:
    writable, readable, data = tmp_path / "one", tmp_path / "a:b", tmp_path / "data"
    writable.mkdir()
    readable.mkdir()
    script_settings = settings(data, f"{writable}:rw, {readable}:r,")
    assert script_settings.open_paths == (OpenPath(writable, True), OpenPath(readable, False))


def test_link_is_opened_as_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    script_settings = settings(tmp_path / "data", f"{tmp_path}/link:r")
    assert script_settings.open_paths == (OpenPath(tmp_path / "real", False),)


@pytest.mark.parametrize("entry", ["/srv", "/srv:x", "srv:r", ":r", "/srv:rw:r"[:5], "/srv:R"])
def test_malformed_path_entry_is_refused(tmp_path: Path, entry: str) -> None:
    with pytest.raises(WrongSettingError, match="absolute paths, each with :r or :rw"):
        settings(tmp_path, entry)


def test_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongSettingError, match="cannot be used"):
        settings(tmp_path / "data", f"{tmp_path}/nowhere:r")


@pytest.mark.parametrize("exists", [True, False])
def test_data_folder_cannot_be_opened(tmp_path: Path, exists: bool) -> None:
    data = tmp_path / "home" / "data"
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to("home")
    names = [tmp_path, tmp_path / "home", tmp_path / "link", Path("/")]
    if exists:
        (data / "work").mkdir(parents=True)
        (tmp_path / "inside").symlink_to(data / "work")
        names += [data, data / "work", tmp_path / "link" / "data", tmp_path / "inside"]
    for name in names:
        with pytest.raises(WrongSettingError, match="must not name the data folder"):
            settings(data, f"{name}:r")


def test_data_folder_behind_a_link_or_relative_path_is_recognized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "data").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    for data in (tmp_path / "data", Path("data"), Path("data") / ".." / "real"):
        with pytest.raises(WrongSettingError, match="must not name the data folder"):
            settings(data, f"{tmp_path}/real:rw")


def test_unknown_sandbox_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongSettingError, match="auto, landlock, bubblewrap, none; got 'chroot'"):
        settings(tmp_path, "", PUNCTUAL_SANDBOX="chroot")


def test_missing_sandbox_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    script_settings = ScriptSettings("bubblewrap")
    with pytest.raises(
        WrongSettingError, match="PUNCTUAL_SANDBOX=bubblewrap is not available: bubblewrap is not"
    ):
        script_settings.choose_sandbox(tmp_path, False, print)


def test_scripts_find_the_interpreter_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/app/.venv/bin/python")
    monkeypatch.setattr(sys, "_base_executable", "/opt/python/bin/python3.11")
    monkeypatch.setenv("PATH", "/app/.venv/bin:/usr/bin:/app/.venv/bin/more")
    assert search_path() == "/opt/python/bin:/usr/bin:/app/.venv/bin/more"
