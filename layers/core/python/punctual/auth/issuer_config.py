"""Read which OIDC issuer an installation trusts, from environment variables."""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

OIDC_ENV_PREFIX = "PUNCTUAL_OIDC_"
TENANT_CLAIM, ROLE_CLAIM = "tenant", "role"

_PRINTABLE = re.compile(r"[\x21-\x7e]{1,512}")
_LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})


class IssuerConfigError(ValueError):
    """The configuration of the issuer is wrong. The message names every wrong variable."""


class IssuerConfig(NamedTuple):
    issuer: str
    audience: str
    tenant_claim: str = TENANT_CLAIM
    role_claim: str = ROLE_CLAIM
    client_id: str | None = None  # of the client that people log in with

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "IssuerConfig | None":
        """Return the configuration, or None without an issuer.

        >>> IssuerConfig.from_env({"PUNCTUAL_OIDC_ISSUER": "http://id.example.com"})
        Traceback (most recent call last):
        punctual.auth.issuer_config.IssuerConfigError: PUNCTUAL_OIDC_ISSUER must be an https \
URL without query; PUNCTUAL_OIDC_AUDIENCE must be 1 to 512 printable characters without spaces
        """
        values = {name: env.get(OIDC_ENV_PREFIX + name.upper(), "") for name in cls._fields}
        if not any(values.values()):
            return None
        config = cls(
            values["issuer"],
            values["audience"],
            values["tenant_claim"] or TENANT_CLAIM,
            values["role_claim"] or ROLE_CLAIM,
            values["client_id"] or None,
        )
        errors = []
        if not is_issuer_url(config.issuer):
            errors.append(f"{OIDC_ENV_PREFIX}ISSUER must be an https URL without query")
        for name in cls._fields[1:]:
            value = getattr(config, name)
            if value is not None and not _PRINTABLE.fullmatch(value):
                text = "must be 1 to 512 printable characters without spaces"
                errors.append(f"{OIDC_ENV_PREFIX}{name.upper()} {text}")
        if errors:
            raise IssuerConfigError("; ".join(errors))
        return config

    def to_env(self) -> dict[str, str]:
        return {
            OIDC_ENV_PREFIX + name.upper(): value for name, value in self._asdict().items() if value
        }


def is_issuer_url(address: str) -> bool:
    """Return True for a URL that can name an issuer.

    >>> is_issuer_url("https://id.example.com/a"), is_issuer_url("https://id.example.com/?a")
    (True, False)
    """
    return is_safe_url(address) and "?" not in address


def is_safe_url(address: str) -> bool:
    """Return True for an https URL, or a URL of this machine. No other host can change its answer.

    >>> [is_safe_url(url) for url in ("https://a.example/?v=1", "http://127.0.0.1:1/", "http://a/")]
    [True, True, False]
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
    """Return True for a URL of this machine.

    >>> is_loopback_url("https://localhost/keys"), is_loopback_url("https://a.example/keys")
    (True, False)
    """
    return urlsplit(address).hostname in _LOOPBACK_HOSTS
