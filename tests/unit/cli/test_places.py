"""Where the command line asks, and what it keeps."""

import json
import stat
from pathlib import Path

import pytest

from punctual_cli import profiles as places
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

KEPT = "https://kept.example/v1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "punctual" / "config.json"


@pytest.mark.parametrize(
    ("asked", "env", "found"),
    [
        (TargetOptions(), {}, ApiTarget(KEPT, "kept", "profile default")),
        (TargetOptions(url="https://a.example"), {}, ApiTarget("https://a.example/v1", None, "--url")),
        (TargetOptions(url=KEPT), {}, ApiTarget(KEPT, "kept", "--url")),
        (TargetOptions(token="t"), {}, ApiTarget(KEPT, "t", "profile default")),
        (TargetOptions(), {"PUNCTUAL_URL": "https://e.example/v1"},
         ApiTarget("https://e.example/v1", None, "PUNCTUAL_URL")),
        (TargetOptions(), {"PUNCTUAL_TOKEN": "e"}, ApiTarget(KEPT, "e", "profile default")),
        (TargetOptions(token="t"), {"PUNCTUAL_URL": "https://e.example/v1", "PUNCTUAL_TOKEN": "e"},
         ApiTarget("https://e.example/v1", "t", "PUNCTUAL_URL")),
        (TargetOptions(profile="work"), {"PUNCTUAL_URL": "https://e.example", "PUNCTUAL_TOKEN": "e"},
         ApiTarget("https://work.example/v1", "w", "profile work")),
        (TargetOptions(), {"PUNCTUAL_PROFILE": "work"},
         ApiTarget("https://work.example/v1", "w", "profile work")),
    ],
)  # fmt: skip
def test_flags_come_before_the_environment_and_that_before_a_login(
    path: Path, asked: TargetOptions, env: dict[str, str], found: ApiTarget
) -> None:
    save_profile(path, "default", KEPT, "kept")
    save_profile(path, "work", "https://work.example/v1", "w")
    assert resolve_target(asked, env, path) == found


def test_without_any_it_is_the_node_of_this_machine(path: Path) -> None:
    assert resolve_target(TargetOptions(), {}, path) == ApiTarget(
        DEFAULT_API_URL, None, "the default"
    )


@pytest.mark.parametrize(
    ("env", "platform", "where"),
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
def test_the_file_stands_where_the_platform_has_such_files(
    env: dict[str, str], platform: str, where: str
) -> None:
    assert str(config_path(env, platform)) == where.format(home=Path.home())


def test_what_is_kept_is_for_nobody_else_even_if_it_was(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"profiles": {}}')
    path.chmod(0o644)
    save_profile(path, "default", KEPT, "secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert read_profiles(path) == {"default": {"url": KEPT, "token": "secret"}}


def test_what_is_forgotten_is_gone_and_the_rest_stays(path: Path) -> None:
    save_profile(path, "a", KEPT, "1")
    save_profile(path, "b", KEPT, "2")
    assert delete_profile(path, "a")
    assert not delete_profile(path, "a")
    assert set(read_profiles(path)) == {"b"}
    assert not delete_profile(path.with_name("none.json"), "a")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"profiles": 5}', '{"profiles": {"a": {}}}', "\x00"]
)
def test_a_damaged_file_says_so(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(CommandError, match="is damaged") as found:
        resolve_target(TargetOptions(), {}, path)
    assert found.value.failure.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    "text", ["", "localhost:8080", "ftp://a", "http://", "http://a:b", "http://a?b=c", "http://u@a"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is no address of an API"):
        places.normalize_url(text)


def test_a_file_of_profiles_is_json_that_a_person_can_read(path: Path) -> None:
    save_profile(path, "default", KEPT, None)
    assert json.loads(path.read_text()) == {"profiles": {"default": {"url": KEPT, "token": None}}}
    assert path.read_text().endswith("}\n")
