"""Check the addresses that a task may call. Only public and opened addresses are allowed."""

import ipaddress
import re
import socket
import unicodedata
from collections.abc import Callable, Sequence

from punctual.tasks.contract import BadTask
from punctual.tasks.script.open_files import NotBegun, is_file_limit

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Sequence[str]]


class AddressNotAllowed(BadTask):
    """A task may not call the address."""


class Unresolved(Exception):
    """The host name has no address, or the resolver did not answer."""


def system_resolver(host: str, port: int) -> Sequence[str]:
    """Return all addresses of a name from the operating system's resolver."""
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        if is_file_limit(error):  # no name server was asked, so the name may be valid
            raise NotBegun from error
        raise Unresolved(f"{host} has no address") from None
    return list(dict.fromkeys(str(socket_address[0]) for *_, socket_address in answers))


def resolve_checked(
    host: str, port: int, resolver: Resolver, *, open_networks: Sequence[IpNetwork] = ()
) -> tuple[IpAddress, ...]:
    """Return the addresses to connect to. Raise AddressNotAllowed if one of them is denied.

    A literal address never reaches the resolver, which may accept further spellings of it.
    """
    name = canonical_host(host)
    address = parse_literal_address(name)
    if address is not None:
        addresses: tuple[IpAddress, ...] = (address,)
    else:
        addresses = tuple(_parse_address(answer) for answer in resolver(name, port))
    if not addresses:
        raise Unresolved(f"{name} has no address")
    for address in addresses:
        reason = refusal_reason(address, open_networks)
        if reason:
            raise AddressNotAllowed(
                f"{name} may not be called: {_address_text(name, address)} {reason}"
            )
    return addresses


def canonical_host(host: str) -> str:
    """Return the host in one spelling: NFKC, lower case, no trailing dot.

    >>> canonical_host("１２７。0.0.1."), canonical_host("[::1]"), canonical_host("Example.COM")
    ('127.0.0.1', '::1', 'example.com')
    """
    folded = unicodedata.normalize("NFKC", host).replace("。", ".").lower()
    return folded.strip("[]").rstrip(".")


def parse_literal_address(host: str) -> IpAddress | None:
    """Return the address that the host spells in any form a C library accepts, or None.

    >>> {parse_literal_address(text) for text in ("0x7f.1", "017700000001", "2130706433")}
    {IPv4Address('127.0.0.1')}
    >>> parse_literal_address("example.com")
    """
    name = canonical_host(host)
    if ":" in name:
        try:
            return ipaddress.IPv6Address(name)
        except ValueError:
            raise AddressNotAllowed(f"{name} is not an IPv6 address") from None
    parts = name.split(".")
    if not _NUMERIC_LABEL.fullmatch(parts[-1]):
        return None
    # A host with a numeric last label is an address. Reject it if it does not parse as IPv4.
    if len(parts) > 4 or not all(_NUMERIC_LABEL.fullmatch(part) for part in parts):
        raise AddressNotAllowed(f"{name} is not an IPv4 address")
    *leading, last = (_parse_number(part) for part in parts)
    if any(part > 255 for part in leading) or last >= 256 ** (4 - len(leading)):
        raise AddressNotAllowed(f"{name} is not an IPv4 address")
    value = last
    for index, part in enumerate(leading):
        value += part << 8 * (3 - index)
    return ipaddress.IPv4Address(value)


def refusal_reason(address: IpAddress, open_networks: Sequence[IpNetwork] = ()) -> str:
    """Return why a task may not call the address, or an empty string.

    `open_networks` allows private networks only. It can never allow a metadata service.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return _ipv4_refusal_reason(address, open_networks)
    embedded = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _IPV4_MAPPED:
        return _ipv4_refusal_reason(embedded, open_networks)
    if address in _NAT64:
        reason = _ipv4_refusal_reason(embedded)
        return f"leads to {embedded}, which {reason}" if reason else ""
    for network, reason in _REFUSED_V6:
        if address in network:
            return (
                "" if reason in _OPENABLE_REASONS and _is_in_any(address, open_networks) else reason
            )
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return "is a tunnel to an IPv4 address"
    return "" if address in _GLOBAL_V6 else "is not public"


def parse_private_network(text: str) -> IpNetwork:
    """Return the network if an operator may open it to tasks. Raise ValueError otherwise.

    >>> parse_private_network("10.1.0.0/16")
    IPv4Network('10.1.0.0/16')
    >>> parse_private_network("169.254.0.0/16")
    Traceback (most recent call last):
    ValueError: 169.254.0.0/16 is not within a private network
    """
    network = ipaddress.ip_network(text)
    refused = _REFUSED_V4 if network.version == 4 else _REFUSED_V6
    if not any(
        _is_subnet(private, network) for private, reason in refused if reason in _OPENABLE_REASONS
    ):
        raise ValueError(f"{text} is not within a private network")
    return network


_NUMERIC_LABEL = re.compile(r"0x[0-9a-f]*|[0-9]+", re.ASCII)
# No unpadded spelling of a 32-bit number is longer.
_MAX_LABEL_CHARACTERS = 64

LOOPBACK_NETWORKS: tuple[IpNetwork, ...] = (
    ipaddress.IPv4Network("127.0.0.0/8"),
    ipaddress.IPv6Network("::1/128"),
)
_OPENABLE_REASONS = ("is private", "is a carrier's private address", "is loopback")
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_IPV4_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
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


def _ipv4_refusal_reason(
    address: ipaddress.IPv4Address, open_networks: Sequence[IpNetwork] = ()
) -> str:
    reason = next((reason for network, reason in _REFUSED_V4 if address in network), "")
    return "" if reason in _OPENABLE_REASONS and _is_in_any(address, open_networks) else reason


def _is_in_any(address: IpAddress, networks: Sequence[IpNetwork]) -> bool:
    return any(address in network for network in networks)


def _is_subnet(outer: IpNetwork, inner: IpNetwork) -> bool:
    if isinstance(outer, ipaddress.IPv4Network):
        return isinstance(inner, ipaddress.IPv4Network) and inner.subnet_of(outer)
    return isinstance(inner, ipaddress.IPv6Network) and inner.subnet_of(outer)


def _parse_number(part: str) -> int:
    if len(part) > _MAX_LABEL_CHARACTERS:
        raise AddressNotAllowed(f"{part[:_MAX_LABEL_CHARACTERS]}… is not an address")
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    if part.startswith("0") and len(part) > 1:
        try:
            return int(part, 8)
        except ValueError:
            raise AddressNotAllowed(f"{part} is not an octal number") from None
    return int(part)


def _parse_address(answer: str) -> IpAddress:
    try:
        return ipaddress.ip_address(answer)
    except ValueError:
        raise Unresolved(f"the resolver answered {answer!r}") from None


def _address_text(name: str, address: IpAddress) -> str:
    return "it" if name == str(address) else str(address)
