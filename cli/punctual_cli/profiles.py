"""Find the address of the API and the token.

Options come first, then the environment, then the profile that login stored.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from punctual.node.files.durable import make_folder, write_durably
from punctual_cli.errors import Trouble

HERE = "http://127.0.0.1:8080/v1"
DEFAULT_PROFILE = "default"
URL, TOKEN_VARIABLE, PROFILE = "PUNCTUAL_URL", "PUNCTUAL_TOKEN", "PUNCTUAL_PROFILE"
PORT = "PUNCTUAL_PORT"


class Place(NamedTuple):
    url: str
    token: str | None
    source: str  # the setting that gave the address


class Asked(NamedTuple):
    """The options of the command line. A missing option is None."""

    url: str | None = None
    token: str | None = None
    profile: str | None = None


def place(asked: Asked, env: Mapping[str, str], path: Path) -> Place:
    """Return the address and the token.

    A stored token is sent only to the address stored with it.
    """
    name = asked.profile or env.get(PROFILE) or None
    # A profile named on the command line overrides the environment.
    env_url = "" if asked.profile else env.get(URL, "")
    env_token = "" if asked.profile else env.get(TOKEN_VARIABLE, "")
    kept = _profile(path, name) if not (asked.url and (asked.token or env_token)) else None
    if asked.url:
        url, source = normal_url(asked.url), "--url"
    elif env_url:
        url, source = normal_url(env_url), URL
    elif kept is not None:
        url, source = kept.url, kept.source
    else:
        url, source = node_here(env)
    token = asked.token or env_token or None
    if token is None and kept is not None and kept.url == url:
        token = kept.token
    return Place(url, token, source)


def node_here(env: Mapping[str, str]) -> tuple[str, str]:
    """Return the address of the node on this machine, and the setting that gave it."""
    port = env.get(PORT, "")
    # with port 0 the system chooses, so the variable does not tell the port
    if not port or port == "0":
        return HERE, "the default"
    if not port.isdecimal() or int(port) > 65_535:
        raise Trouble(f"{PORT} must be a port from 1 to 65535; got {port!r}.")
    return f"http://127.0.0.1:{int(port)}/v1", PORT


def normal_url(text: str) -> str:
    """Return an API address with its scheme and the path of its version.

    >>> normal_url("http://127.0.0.1:8080/"), normal_url("https://api.example.com/prod/v1/")
    ('http://127.0.0.1:8080/v1', 'https://api.example.com/prod/v1')
    """
    try:
        parts = urlsplit(text.strip())
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or parts.query or parts.fragment or parts.username:
        advice = f"Write it like {HERE} or https://….amazonaws.com/v1."
        raise Trouble(f"{text!r} is no address of an API.", advice=advice)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def config_path(env: Mapping[str, str], platform: str = sys.platform) -> Path:
    if platform == "win32":
        base = Path(env.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    else:
        given = env.get("XDG_CONFIG_HOME") or ""
        # The XDG specification ignores a relative path.
        base = Path(given) if given.startswith("/") else Path.home() / ".config"
    return base / "punctual" / "config.json"


def _profile(path: Path, name: str | None) -> Place | None:
    found = profiles(path).get(name or DEFAULT_PROFILE)
    if found is None:
        if name is None:
            return None
        raise Trouble(
            f"There is no profile {name!r} in {path}.",
            advice=f"Make it with `punctual login --profile {name}`.",
        )
    return Place(found["url"], found.get("token"), f"profile {name or DEFAULT_PROFILE}")


def profiles(path: Path) -> dict[str, dict[str, Any]]:
    try:
        found = json.loads(path.read_text())["profiles"]
        if all(isinstance(one["url"], str) for one in found.values()):
            return dict(found)
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise Trouble(f"{path} is damaged.", advice="Remove it, then log in again: `punctual login`.")


def keep(path: Path, name: str, url: str, token: str | None) -> None:
    _write(path, {**profiles(path), name: {"url": url, "token": token}})


def forget(path: Path, name: str) -> bool:
    """Delete a profile. Return True if it existed."""
    found = profiles(path)
    if found.pop(name, None) is None:
        return False
    _write(path, found)
    return True


def _write(path: Path, found: Mapping[str, Any]) -> None:
    """Replace the file atomically. Only its owner can read it, from its first byte."""
    make_folder(path.parent)
    text = json.dumps({"profiles": dict(found)}, indent=2) + "\n"
    write_durably(path, text.encode(), path.with_name(f"{path.name}.{os.getpid()}"))
