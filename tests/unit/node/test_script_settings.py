"""The settings of scripts on the node: each wrong one stops the start with what is right."""

import sys
from pathlib import Path

import pytest

from punctual.node.script_settings import ScriptSettings, WrongSettingError, search_path
from punctual.tasks.script.sandbox import OpenPath


def settings(data: Path, paths: str, **env: str) -> ScriptSettings:
    return ScriptSettings.from_env({"PUNCTUAL_SCRIPT_PATHS": paths, **env}, data)


def test_without_settings_the_sandbox_is_chosen_and_nothing_is_opened(tmp_path: Path) -> None:
    assert ScriptSettings.from_env({}, tmp_path) == ScriptSettings("auto", ())


def test_paths_are_read_or_written(tmp_path: Path) -> None:
    one, other, data = tmp_path / "one", tmp_path / "a:b", tmp_path / "data"
    one.mkdir()
    other.mkdir()
    found = settings(data, f"{one}:rw, {other}:r,")
    assert found.open_paths == (OpenPath(one, True), OpenPath(other, False))


def test_a_link_is_opened_as_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = settings(tmp_path / "data", f"{tmp_path}/link:r")
    assert found.open_paths == (OpenPath(tmp_path / "real", False),)


@pytest.mark.parametrize("entry", ["/srv", "/srv:x", "srv:r", ":r", "/srv:rw:r"[:5], "/srv:R"])
def test_an_entry_of_another_form_is_refused(tmp_path: Path, entry: str) -> None:
    with pytest.raises(WrongSettingError, match="absolute paths, each with :r or :rw"):
        settings(tmp_path, entry)


def test_a_path_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(WrongSettingError, match="cannot be used"):
        settings(tmp_path / "data", f"{tmp_path}/nowhere:r")


@pytest.mark.parametrize("exists", [True, False])
def test_the_data_folder_cannot_be_opened(tmp_path: Path, exists: bool) -> None:
    data = tmp_path / "home" / "data"
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to("home")
    names = [tmp_path, tmp_path / "home", tmp_path / "link", Path("/")]
    if exists:
        (data / "work").mkdir(parents=True)
        (tmp_path / "inside").symlink_to(data / "work")
        names += [data, data / "work", tmp_path / "link" / "data", tmp_path / "inside"]
    for name in names:
        with pytest.raises(WrongSettingError, match="must keep out of the data folder"):
            settings(data, f"{name}:r")


def test_the_data_folder_may_be_named_by_a_link_or_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "data").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    for data in (tmp_path / "data", Path("data"), Path("data") / ".." / "real"):
        with pytest.raises(WrongSettingError, match="must keep out"):
            settings(data, f"{tmp_path}/real:rw")


def test_an_unknown_sandbox_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongSettingError, match="auto, landlock, bubblewrap, none; got 'chroot'"):
        settings(tmp_path, "", PUNCTUAL_SANDBOX="chroot")


def test_a_sandbox_that_is_missing_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    wanted = ScriptSettings("bubblewrap")
    with pytest.raises(
        WrongSettingError, match="PUNCTUAL_SANDBOX=bubblewrap cannot be had: bubblewrap is not"
    ):
        wanted.choose_sandbox(tmp_path, False, print)


def test_scripts_find_the_interpreter_below_our_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/app/.venv/bin/python")
    monkeypatch.setattr(sys, "_base_executable", "/opt/python/bin/python3.11")
    monkeypatch.setenv("PATH", "/app/.venv/bin:/usr/bin:/app/.venv/bin/more")
    assert search_path() == "/opt/python/bin:/usr/bin:/app/.venv/bin/more"
