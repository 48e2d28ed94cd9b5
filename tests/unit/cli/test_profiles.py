"""The API that the command line calls, and the profiles that it keeps."""

import json
import stat
from pathlib import Path

import pytest

from punctual_cli import profiles
from punctual_cli.errors import CommandError, ExitCode
from punctual_cli.profiles import (
    DEFAULT_API_URL,
    ApiTarget,
    TargetOptions,
    config_path,
    delete_profile,
    read_profiles,
    resolve_target,
    save_profile,
)

SAVED_URL = "https://kept.example/v1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "punctual" / "config.json"


@pytest.mark.parametrize(
    ("options", "env", "expected"),
    [
        (TargetOptions(), {}, ApiTarget(SAVED_URL, "kept", "profile default", "default")),
        (TargetOptions(url="https://a.example"), {},
         ApiTarget("https://a.example/v1", None, "--url")),
        (TargetOptions(url=SAVED_URL), {}, ApiTarget(SAVED_URL, "kept", "--url")),
        (TargetOptions(token="t"), {}, ApiTarget(SAVED_URL, "t", "profile default", "default")),
        (TargetOptions(), {"PUNCTUAL_URL": "https://e.example/v1"},
         ApiTarget("https://e.example/v1", None, "PUNCTUAL_URL")),
        (TargetOptions(), {"PUNCTUAL_TOKEN": "e"},
         ApiTarget(SAVED_URL, "e", "profile default", "default")),
        (TargetOptions(token="t"), {"PUNCTUAL_URL": "https://e.example/v1", "PUNCTUAL_TOKEN": "e"},
         ApiTarget("https://e.example/v1", "t", "PUNCTUAL_URL")),
        (TargetOptions(profile="work"),
         {"PUNCTUAL_URL": "https://e.example", "PUNCTUAL_TOKEN": "e"},
         ApiTarget("https://work.example/v1", "w", "profile work", "work")),
        (TargetOptions(), {"PUNCTUAL_PROFILE": "work"},
         ApiTarget("https://work.example/v1", "w", "profile work", "work")),
    ],
)  # fmt: skip
def test_flags_win_over_the_environment_and_that_over_a_profile(
    path: Path, options: TargetOptions, env: dict[str, str], expected: ApiTarget
) -> None:
    save_profile(path, "default", SAVED_URL, "kept")
    save_profile(path, "work", "https://work.example/v1", "w")
    assert resolve_target(options, env, path) == expected


def test_target_defaults_to_the_node_of_this_machine(path: Path) -> None:
    assert resolve_target(TargetOptions(), {}, path) == ApiTarget(
        DEFAULT_API_URL, None, "the default"
    )


@pytest.mark.parametrize(
    ("env", "platform", "expected"),
    [
        ({"XDG_CONFIG_HOME": "/x"}, "linux", "/x/punctual/config.json"),
        ({"XDG_CONFIG_HOME": "relative"}, "linux", "{home}/.config/punctual/config.json"),
        ({}, "darwin", "{home}/.config/punctual/config.json"),
        (
            {"APPDATA": "/roaming", "XDG_CONFIG_HOME": "/x"},
            "win32",
            "/roaming/punctual/config.json",
        ),
        ({}, "win32", "{home}/AppData/Roaming/punctual/config.json"),
    ],
)
def test_config_path_follows_the_platform(
    env: dict[str, str], platform: str, expected: str
) -> None:
    assert str(config_path(env, platform)) == expected.format(home=Path.home())


def test_saved_profile_is_readable_by_its_owner_only(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"profiles": {}}')
    path.chmod(0o644)
    save_profile(path, "default", SAVED_URL, "secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert read_profiles(path) == {"default": {"url": SAVED_URL, "token": "secret"}}


def test_deleted_profile_is_gone_and_the_others_stay(path: Path) -> None:
    save_profile(path, "a", SAVED_URL, "1")
    save_profile(path, "b", SAVED_URL, "2")
    assert delete_profile(path, "a")
    assert not delete_profile(path, "a")
    assert set(read_profiles(path)) == {"b"}
    assert not delete_profile(path.with_name("none.json"), "a")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"profiles": 5}', '{"profiles": {"a": {}}}', "\x00"]
)
def test_damaged_config_file_is_reported(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(CommandError, match="is not a valid configuration file") as raised:
        resolve_target(TargetOptions(), {}, path)
    assert raised.value.failure.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    "text", ["", "localhost:8080", "ftp://a", "http://", "http://a:b", "http://a?b=c", "http://u@a"]
)
def test_wrong_url_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not the address of an API"):
        profiles.normalize_url(text)


def test_config_file_is_readable_json(path: Path) -> None:
    save_profile(path, "default", SAVED_URL, None)
    assert json.loads(path.read_text()) == {
        "profiles": {"default": {"url": SAVED_URL, "token": None}}
    }
    assert path.read_text().endswith("}\n")
