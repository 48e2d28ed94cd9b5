"""Whose JWTs are taken besides our own tokens, as a deployment or a node is told."""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

OIDC_ENV_PREFIX = "PUNCTUAL_OIDC_"
TENANT_CLAIM, ROLE_CLAIM = "tenant", "role"

_PRINTABLE = re.compile(r"[\x21-\x7e]{1,512}")
_LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})


class IssuerConfigError(ValueError):
    """What was said of the issuer cannot be; the message names every wrong variable."""


class IssuerConfig(NamedTuple):
    issuer: str
    audience: str
    tenant_claim: str = TENANT_CLAIM
    role_claim: str = ROLE_CLAIM
    client_id: str | None = None  # of the client that people log in with

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "IssuerConfig | None":
        """None where no issuer is named.

        >>> IssuerConfig.from_env({"PUNCTUAL_OIDC_ISSUER": "http://id.example.com"})
        Traceback (most recent call last):
        punctual.auth.issuer_config.IssuerConfigError: PUNCTUAL_OIDC_ISSUER must be an https \
address without query; PUNCTUAL_OIDC_AUDIENCE must be 1 to 512 printable characters without spaces
        """
        said = {name: env.get(OIDC_ENV_PREFIX + name.upper(), "") for name in cls._fields}
        if not any(said.values()):
            return None
        trust = cls(
            said["issuer"],
            said["audience"],
            said["tenant_claim"] or TENANT_CLAIM,
            said["role_claim"] or ROLE_CLAIM,
            said["client_id"] or None,
        )
        wrong = []
        if not is_issuer_url(trust.issuer):
            wrong.append(f"{OIDC_ENV_PREFIX}ISSUER must be an https address without query")
        for name in cls._fields[1:]:
            value = getattr(trust, name)
            if value is not None and not _PRINTABLE.fullmatch(value):
                text = "must be 1 to 512 printable characters without spaces"
                wrong.append(f"{OIDC_ENV_PREFIX}{name.upper()} {text}")
        if wrong:
            raise IssuerConfigError("; ".join(wrong))
        return trust

    def to_env(self) -> dict[str, str]:
        return {
            OIDC_ENV_PREFIX + name.upper(): value for name, value in self._asdict().items() if value
        }


def is_issuer_url(address: str) -> bool:
    """An issuer's own address, which begins those of all that it publishes.

    >>> is_issuer_url("https://id.example.com/a"), is_issuer_url("https://id.example.com/?a")
    (True, False)
    """
    return is_safe_url(address) and "?" not in address


def is_safe_url(address: str) -> bool:
    """Nobody on the way can change what is read there.

    >>> is_safe_url("https://a.example/keys?v=1"), is_safe_url("http://127.0.0.1:1/"), is_safe_url("http://a/")
    (True, True, False)
    """
    if not _PRINTABLE.fullmatch(address) or "#" in address:
        return False
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or port == 0 or "@" in parts.netloc:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK_HOSTS)


def is_loopback_url(address: str) -> bool:
    """
    >>> is_loopback_url("https://localhost/keys"), is_loopback_url("https://a.example/keys")
    (True, False)
    """
    return urlsplit(address).hostname in _LOOPBACK_HOSTS
