import ipaddress

import pytest

from punctual.tasks.http.addresses import (
    LOOPBACK_NETWORKS,
    AddressNotAllowed,
    Unresolved,
    canonical_host,
    parse_literal_address,
    parse_private_network,
    refusal_reason,
    resolve_checked,
)


def fail_on_lookup(host: str, port: int) -> list[str]:
    raise AssertionError(f"{host} was looked up")


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::2",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:0:127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:10::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:808:808::1",
        "2606:4700::5efe:10.0.0.1",
        "2606:4700::200:5efe:10.0.0.1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
    ],
)
def test_address_that_is_not_public_is_refused(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "11.0.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "128.0.0.1",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.1",
        "192.167.255.255",
        "198.20.0.1",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2606:4700:4700::1111",
        "2a00:1450:4001::200e",
    ],
)
def test_public_address_is_allowed(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address)) == ""


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_allowed_if_opened(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address)) == "is loopback"
    assert refusal_reason(ipaddress.ip_address(address), LOOPBACK_NETWORKS) == ""


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "::", "10.0.0.1", "169.254.169.254", "64:ff9b::127.0.0.1", "::127.0.0.1"],
)
def test_opened_loopback_allows_no_other_address(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address), LOOPBACK_NETWORKS)


OPENED_NETWORKS = [
    *(
        parse_private_network(network)
        for network in ("10.1.0.0/16", "100.64.0.0/10", "fc00::/7", "127.0.0.0/8")
    ),
    # `cdk.json` refuses these.
    *(ipaddress.ip_network(network) for network in ("0.0.0.0/0", "::/0")),
]


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "100.64.0.1", "fd12::1", "::ffff:10.1.2.3", "127.0.0.1"]
)
def test_private_address_is_allowed_if_its_network_is_opened(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address))
    assert refusal_reason(ipaddress.ip_address(address), OPENED_NETWORKS[:4]) == ""


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.170.2", "169.254.100.1", "168.63.129.16", "0.0.0.0", "::"),
        *("fd00:ec2::254", "fd00:ec2::23", "::ffff:169.254.169.254", "64:ff9b::10.1.2.3"),
        *("fe80::1", "::10.1.2.3", "2002:a01:203::", "224.0.0.1", "255.255.255.255"),
    ],
)
def test_opened_network_never_includes_metadata_or_special_addresses(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address), OPENED_NETWORKS)


@pytest.mark.parametrize("text", ["10.0.0.0/15", "172.16.0.0/12", "192.168.7.0/24", "fd12::/48"])
def test_private_network_can_be_opened(text: str) -> None:
    assert str(parse_private_network(text)) == text


@pytest.mark.parametrize("text", ["8.8.8.0/24", "0.0.0.0/0", "169.254.0.0/16", "10.0.0.1/8", "x"])
def test_other_network_cannot_be_opened(text: str) -> None:
    with pytest.raises(ValueError, match=r"network|address|host bits"):
        parse_private_network(text)


def test_metadata_service_is_named_in_the_reason() -> None:
    assert refusal_reason(ipaddress.ip_address("169.254.169.254")) == "is the metadata service"
    assert refusal_reason(ipaddress.ip_address("fd00:ec2::254")) == "is the metadata service"


@pytest.mark.parametrize(
    "spelling",
    [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0X7F000001",
        "0x7f.1",
        "0x7f.0x0.0x0.0x1",
        "017700000001",
        "0177.0.0.1",
        "0177.0x0.1",
        "00000177.1",
        "１２７.0.0.1",
        "１２７。０。０。１",
        "127｡0｡0｡1",
        "①②⑦.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::FFFF:7F00:1]",
        "[0:0:0:0:0:0:0:1]",
    ],
)
def test_every_spelling_of_loopback_is_refused_without_a_lookup(spelling: str) -> None:
    with pytest.raises(AddressNotAllowed, match="is loopback"):
        resolve_checked(spelling, 80, fail_on_lookup)
    assert len(resolve_checked(spelling, 80, fail_on_lookup, open_networks=LOOPBACK_NETWORKS)) == 1


@pytest.mark.parametrize(
    "spelling",
    [
        "256.1.1.1",
        "1.2.3.4.5",
        "4294967296",
        "0x100000000",
        "1.2.3.256",
        "1.16777216",
        "08.1.1.1",
        "a.1",
        "1..1",
        "example.0x7f",
        "1" * 5000,
        "[::g]",
        "[fe80::1%25eth0%]",
        ":80",
    ],
)
def test_malformed_address_is_refused_without_a_lookup(spelling: str) -> None:
    with pytest.raises(AddressNotAllowed):
        resolve_checked(spelling, 80, fail_on_lookup)


@pytest.mark.parametrize("name", ["example.com", "0x7f.example", "127.0.0.1.nip.io", "a1", "xn--n"])
def test_host_name_is_not_an_address(name: str) -> None:
    assert parse_literal_address(name) is None


def test_public_literal_address_is_returned_in_its_plain_form() -> None:
    assert resolve_checked("0x08080808", 80, fail_on_lookup) == (ipaddress.ip_address("8.8.8.8"),)


def test_host_name_is_resolved_once_to_all_its_addresses_in_order() -> None:
    lookups: list[tuple[str, int]] = []

    def resolver(host: str, port: int) -> list[str]:
        lookups.append((host, port))
        return ["2606:4700:4700::1111", "1.1.1.1"]

    addresses = resolve_checked("One.Example.", 443, resolver)

    assert [str(address) for address in addresses] == ["2606:4700:4700::1111", "1.1.1.1"]
    assert lookups == [("one.example", 443)]


@pytest.mark.parametrize("refused_address", ["10.0.0.1", "::1", "169.254.169.254", "fe80::1%eth0"])
def test_host_name_with_one_refused_address_is_refused(refused_address: str) -> None:
    with pytest.raises(AddressNotAllowed, match=r"mixed\.example may not be called"):
        resolve_checked("mixed.example", 80, lambda *_: ["1.1.1.1", refused_address])


def test_lookup_without_a_valid_address_is_unresolved() -> None:
    with pytest.raises(Unresolved, match="no address"):
        resolve_checked("none.example", 80, lambda *_: [])
    with pytest.raises(Unresolved, match="answered 'what'"):
        resolve_checked("odd.example", 80, lambda *_: ["what"])


def test_canonical_host_folds_case_width_and_trailing_dots() -> None:
    assert canonical_host("ＥＸＡＭＰＬＥ．com.") == "example.com"
    assert canonical_host("[::1]") == "::1"
