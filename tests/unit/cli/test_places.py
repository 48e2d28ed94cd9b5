"""Where the command line asks, and what it keeps."""

import json
import stat
from pathlib import Path

import pytest

from punctual_cli import profiles as places
from punctual_cli.errors import Code, Trouble
from punctual_cli.profiles import HERE, Asked, Place, config_path, forget, keep, place, profiles

KEPT = "https://kept.example/v1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "punctual" / "config.json"


@pytest.mark.parametrize(
    ("asked", "env", "found"),
    [
        (Asked(), {}, Place(KEPT, "kept", "profile default")),
        (Asked(url="https://a.example"), {}, Place("https://a.example/v1", None, "--url")),
        (Asked(url=KEPT), {}, Place(KEPT, "kept", "--url")),
        (Asked(token="t"), {}, Place(KEPT, "t", "profile default")),
        (Asked(), {"PUNCTUAL_URL": "https://e.example/v1"},
         Place("https://e.example/v1", None, "PUNCTUAL_URL")),
        (Asked(), {"PUNCTUAL_TOKEN": "e"}, Place(KEPT, "e", "profile default")),
        (Asked(token="t"), {"PUNCTUAL_URL": "https://e.example/v1", "PUNCTUAL_TOKEN": "e"},
         Place("https://e.example/v1", "t", "PUNCTUAL_URL")),
        (Asked(profile="work"), {"PUNCTUAL_URL": "https://e.example", "PUNCTUAL_TOKEN": "e"},
         Place("https://work.example/v1", "w", "profile work")),
        (Asked(), {"PUNCTUAL_PROFILE": "work"},
         Place("https://work.example/v1", "w", "profile work")),
    ],
)  # fmt: skip
def test_flags_come_before_the_environment_and_that_before_a_login(
    path: Path, asked: Asked, env: dict[str, str], found: Place
) -> None:
    keep(path, "default", KEPT, "kept")
    keep(path, "work", "https://work.example/v1", "w")
    assert place(asked, env, path) == found


def test_without_any_it_is_the_node_of_this_machine(path: Path) -> None:
    assert place(Asked(), {}, path) == Place(HERE, None, "the default")


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
    keep(path, "default", KEPT, "secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert profiles(path) == {"default": {"url": KEPT, "token": "secret"}}


def test_what_is_forgotten_is_gone_and_the_rest_stays(path: Path) -> None:
    keep(path, "a", KEPT, "1")
    keep(path, "b", KEPT, "2")
    assert forget(path, "a")
    assert not forget(path, "a")
    assert set(profiles(path)) == {"b"}
    assert not forget(path.with_name("none.json"), "a")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"profiles": 5}', '{"profiles": {"a": {}}}', "\x00"]
)
def test_a_damaged_file_says_so(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(Trouble, match="is damaged") as found:
        place(Asked(), {}, path)
    assert found.value.told.exit_code is Code.USAGE


@pytest.mark.parametrize(
    "text", ["", "localhost:8080", "ftp://a", "http://", "http://a:b", "http://a?b=c", "http://u@a"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Trouble, match="is no address of an API"):
        places.normal_url(text)


def test_a_file_of_profiles_is_json_that_a_person_can_read(path: Path) -> None:
    keep(path, "default", KEPT, None)
    assert json.loads(path.read_text()) == {"profiles": {"default": {"url": KEPT, "token": None}}}
    assert path.read_text().endswith("}\n")
