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
from punctual_cli.errors import CommandError

DEFAULT_API_URL = "http://127.0.0.1:8080/v1"
DEFAULT_PROFILE = "default"
URL_VARIABLE, TOKEN_VARIABLE, PROFILE_VARIABLE = (
    "PUNCTUAL_URL",
    "PUNCTUAL_TOKEN",
    "PUNCTUAL_PROFILE",
)
PORT_VARIABLE = "PUNCTUAL_PORT"


class ApiTarget(NamedTuple):
    url: str
    token: str | None
    source: str  # the setting that gave the address
    profile: str = ""  # the stored login, if it gave the address


class TargetOptions(NamedTuple):
    """The options of the command line. A missing option is None."""

    url: str | None = None
    token: str | None = None
    profile: str | None = None


def resolve_target(options: TargetOptions, env: Mapping[str, str], path: Path) -> ApiTarget:
    """Return the address and the token.

    A stored token is sent only to the address stored with it.
    """
    name = options.profile or env.get(PROFILE_VARIABLE) or None
    # A profile named on the command line overrides the environment.
    env_url = "" if options.profile else env.get(URL_VARIABLE, "")
    env_token = "" if options.profile else env.get(TOKEN_VARIABLE, "")
    stored = (
        _profile_target(path, name) if not (options.url and (options.token or env_token)) else None
    )
    profile = ""
    if options.url:
        url, source = normalize_url(options.url), "--url"
    elif env_url:
        url, source = normalize_url(env_url), URL_VARIABLE
    elif stored is not None:
        url, source, profile = stored.url, stored.source, stored.profile
    else:
        url, source = local_node_url(env)
    token = options.token or env_token or None
    if token is None and stored is not None and stored.url == url:
        token = stored.token
    return ApiTarget(url, token, source, profile)


def local_node_url(env: Mapping[str, str]) -> tuple[str, str]:
    """Return the address of the node on this machine, and the setting that gave it."""
    port = env.get(PORT_VARIABLE, "")
    # with port 0 the system chooses, so the variable does not tell the port
    if not port or port == "0":
        return DEFAULT_API_URL, "the default"
    if not port.isdecimal() or int(port) > 65_535:
        raise CommandError(f"{PORT_VARIABLE} must be a port from 1 to 65535; got {port!r}.")
    return f"http://127.0.0.1:{int(port)}/v1", PORT_VARIABLE


def normalize_url(text: str) -> str:
    """Return an API address with its scheme and the path of its version.

    >>> normalize_url("http://127.0.0.1:8080/"), normalize_url("https://api.example.com/prod/v1/")
    ('http://127.0.0.1:8080/v1', 'https://api.example.com/prod/v1')
    """
    try:
        parts = urlsplit(text.strip())
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or parts.query or parts.fragment or parts.username:
        advice = f"Use an address such as {DEFAULT_API_URL} or https://….amazonaws.com/v1."
        raise CommandError(f"{text!r} is not the address of an API.", advice=advice)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def config_path(env: Mapping[str, str], platform: str = sys.platform) -> Path:
    if platform == "win32":
        base = Path(env.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    else:
        config_home = env.get("XDG_CONFIG_HOME") or ""
        # The XDG specification ignores a relative path.
        base = Path(config_home) if config_home.startswith("/") else Path.home() / ".config"
    return base / "punctual" / "config.json"


def _profile_target(path: Path, name: str | None) -> ApiTarget | None:
    profile_name = name or DEFAULT_PROFILE
    profile = read_profiles(path).get(profile_name)
    if profile is None:
        if name is None:
            return None
        raise CommandError(
            f"There is no profile {name!r} in {path}.",
            advice=f"Create it with `punctual login --profile {name}`.",
        )
    source = f"profile {profile_name}"
    return ApiTarget(profile["url"], profile.get("token"), source, profile_name)


def read_profiles(path: Path) -> dict[str, dict[str, Any]]:
    try:
        profiles = json.loads(path.read_text())["profiles"]
        has_urls = all(isinstance(profile["url"], str) for profile in profiles.values())
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _invalid_file(path) from error
    if not has_urls:
        raise _invalid_file(path)
    return dict(profiles)


def _invalid_file(path: Path) -> CommandError:
    return CommandError(
        f"{path} is not a valid configuration file.",
        advice="Remove it, then log in again: `punctual login`.",
    )


def save_profile(path: Path, name: str, url: str, token: str | None) -> None:
    _write_profiles(path, {**read_profiles(path), name: {"url": url, "token": token}})


def delete_profile(path: Path, name: str) -> bool:
    """Delete a profile. Return True if it existed."""
    stored = read_profiles(path)
    if stored.pop(name, None) is None:
        return False
    _write_profiles(path, stored)
    return True


def _write_profiles(path: Path, stored: Mapping[str, Any]) -> None:
    """Replace the file atomically. Only its owner can read it, from its first byte."""
    make_folder(path.parent)
    text = json.dumps({"profiles": dict(stored)}, indent=2) + "\n"
    write_durably(path, text.encode(), path.with_name(f"{path.name}.{os.getpid()}"))
