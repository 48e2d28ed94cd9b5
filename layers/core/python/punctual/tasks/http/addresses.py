"""Check the addresses that a task may call. Only public and opened addresses are allowed."""

import ipaddress
import re
import socket
import unicodedata
from collections.abc import Callable, Sequence

from punctual.tasks.contract import BadTask
from punctual.tasks.script.open_files import NotBegun, is_full

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Sequence[str]]


class AddressNotAllowed(BadTask):
    """A task may not call the address."""


class Unresolved(Exception):
    """The host name has no address, or the resolver did not answer."""


def system_resolver(host: str, port: int) -> Sequence[str]:
    """Return all addresses of a name from the operating system's resolver."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        if is_full(error):  # no name server was asked, so the name may be valid
            raise NotBegun from error
        raise Unresolved(f"{host} has no address") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def checked(
    host: str, port: int, resolver: Resolver, *, opened: Sequence[Network] = ()
) -> tuple[Address, ...]:
    """Return the addresses to connect to. Raise AddressNotAllowed if one of them is denied.

    A literal address never reaches the resolver, which may accept further spellings of it.
    """
    name = canonical(host)
    address = literal(name)
    if address is not None:
        found: tuple[Address, ...] = (address,)
    else:
        found = tuple(_parsed(answer) for answer in resolver(name, port))
    if not found:
        raise Unresolved(f"{name} has no address")
    for address in found:
        reason = refusal(address, opened)
        if reason:
            raise AddressNotAllowed(f"{name} may not be called: {_named(name, address)} {reason}")
    return found


def canonical(host: str) -> str:
    """Return the host in one spelling: NFKC, lower case, no trailing dot.

    >>> canonical("１２７。0.0.1."), canonical("[::1]"), canonical("Example.COM")
    ('127.0.0.1', '::1', 'example.com')
    """
    folded = unicodedata.normalize("NFKC", host).replace("。", ".").lower()
    return folded.strip("[]").rstrip(".")


def literal(host: str) -> Address | None:
    """Return the address that the host spells in any form a C library accepts, or None.

    >>> literal("0x7f.1"), literal("017700000001"), literal("2130706433")
    (IPv4Address('127.0.0.1'), IPv4Address('127.0.0.1'), IPv4Address('127.0.0.1'))
    >>> literal("example.com")
    """
    name = canonical(host)
    if ":" in name:
        try:
            return ipaddress.IPv6Address(name)
        except ValueError:
            raise AddressNotAllowed(f"{name} is no IPv6 address") from None
    parts = name.split(".")
    if not _NUMBER.fullmatch(parts[-1]):
        return None
    # A host with a numeric last label is an address. Reject it if it does not parse as IPv4.
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        raise AddressNotAllowed(f"{name} is no IPv4 address")
    *head, last = (_number(part) for part in parts)
    if any(part > 255 for part in head) or last >= 256 ** (4 - len(head)):
        raise AddressNotAllowed(f"{name} is no IPv4 address")
    value = last
    for place, part in enumerate(head):
        value += part << 8 * (3 - place)
    return ipaddress.IPv4Address(value)


def refusal(address: Address, opened: Sequence[Network] = ()) -> str:
    """Return why a task may not call the address, or an empty string.

    `opened` allows private networks only. It can never allow a metadata service.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return _refusal_v4(address, opened)
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _MAPPED:
        return _refusal_v4(low, opened)
    if address in _NAT64:
        reason = _refusal_v4(low)
        return f"leads to {low}, which {reason}" if reason else ""
    for network, reason in _REFUSED_V6:
        if address in network:
            return "" if reason in _OWN and _within(address, opened) else reason
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return "is a tunnel to an IPv4 address"
    return "" if address in _GLOBAL_V6 else "is not public"


def private_network(text: str) -> Network:
    """Return the network if an operator may open it to tasks. Raise ValueError otherwise.

    >>> private_network("10.1.0.0/16")
    IPv4Network('10.1.0.0/16')
    >>> private_network("169.254.0.0/16")
    Traceback (most recent call last):
    ValueError: 169.254.0.0/16 is not within a private network
    """
    network = ipaddress.ip_network(text)
    refused = _REFUSED_V4 if network.version == 4 else _REFUSED_V6
    if not any(_holds(other, network) for other, reason in refused if reason in _OWN):
        raise ValueError(f"{text} is not within a private network")
    return network


_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+", re.ASCII)
# No unpadded spelling of a 32-bit number is longer.
_MAX_DIGITS = 64

LOOPBACK: tuple[Network, ...] = (
    ipaddress.IPv4Network("127.0.0.0/8"),
    ipaddress.IPv6Network("::1/128"),
)
_OWN = ("is private", "is a carrier's private address", "is loopback")
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)

# Listed here because `ipaddress.is_global` differs between Python versions.
_REFUSED_V4 = tuple(
    (ipaddress.IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "is unspecified"),
        ("10.0.0.0/8", "is private"),
        ("100.64.0.0/10", "is a carrier's private address"),
        ("127.0.0.0/8", "is loopback"),
        ("169.254.169.254/32", "is the metadata service"),
        ("169.254.0.0/16", "is link-local"),
        ("168.63.129.16/32", "is the metadata service"),
        ("172.16.0.0/12", "is private"),
        ("192.0.0.0/24", "is reserved"),
        ("192.0.2.0/24", "is reserved"),
        ("192.88.99.0/24", "is reserved"),
        ("192.168.0.0/16", "is private"),
        ("198.18.0.0/15", "is reserved"),
        ("198.51.100.0/24", "is reserved"),
        ("203.0.113.0/24", "is reserved"),
        ("224.0.0.0/4", "is multicast"),
        ("240.0.0.0/4", "is reserved"),
    )
)
_REFUSED_V6 = tuple(
    (ipaddress.IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "is unspecified"),
        ("::1/128", "is loopback"),
        ("::/96", "is an IPv4 address in disguise"),
        ("::ffff:0:0:0/96", "is an IPv4 address in disguise"),
        ("64:ff9b:1::/48", "is a tunnel to an IPv4 address"),
        ("2002::/16", "is a tunnel to an IPv4 address"),
        ("2001::/32", "is a tunnel to an IPv4 address"),
        ("2001::/23", "is reserved"),
        ("2001:db8::/32", "is reserved"),
        ("3fff::/20", "is reserved"),
        # Metadata of EC2 instances and of their containers.
        ("fd00:ec2::/32", "is the metadata service"),
        ("fc00::/7", "is private"),
        ("fe80::/10", "is link-local"),
        ("fec0::/10", "is private"),
        ("ff00::/8", "is multicast"),
    )
)


def _refusal_v4(address: ipaddress.IPv4Address, opened: Sequence[Network] = ()) -> str:
    reason = next((reason for network, reason in _REFUSED_V4 if address in network), "")
    return "" if reason in _OWN and _within(address, opened) else reason


def _within(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def _holds(outer: Network, inner: Network) -> bool:
    if isinstance(outer, ipaddress.IPv4Network):
        return isinstance(inner, ipaddress.IPv4Network) and inner.subnet_of(outer)
    return isinstance(inner, ipaddress.IPv6Network) and inner.subnet_of(outer)


def _number(part: str) -> int:
    if len(part) > _MAX_DIGITS:
        raise AddressNotAllowed(f"{part[:_MAX_DIGITS]}… is no address")
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    if part.startswith("0") and len(part) > 1:
        try:
            return int(part, 8)
        except ValueError:
            raise AddressNotAllowed(f"{part} is no octal number") from None
    return int(part)


def _parsed(answer: str) -> Address:
    try:
        return ipaddress.ip_address(answer)
    except ValueError:
        raise Unresolved(f"the resolver answered {answer!r}") from None


def _named(name: str, address: Address) -> str:
    return "it" if name == str(address) else str(address)
