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


def nobody(host: str, port: int) -> list[str]:
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
def test_what_is_not_public_is_refused(address: str) -> None:
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
def test_what_is_public_may_be_called(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address)) == ""


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_may_be_allowed(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address)) == "is loopback"
    assert refusal_reason(ipaddress.ip_address(address), LOOPBACK_NETWORKS) == ""


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "::", "10.0.0.1", "169.254.169.254", "64:ff9b::127.0.0.1", "::127.0.0.1"],
)
def test_allowing_loopback_allows_nothing_else(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address), LOOPBACK_NETWORKS)


OWN = [
    *(
        parse_private_network(one)
        for one in ("10.1.0.0/16", "100.64.0.0/10", "fc00::/7", "127.0.0.0/8")
    ),
    # Not what cdk.json would let through.
    *(ipaddress.ip_network(one) for one in ("0.0.0.0/0", "::/0")),
]


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "100.64.0.1", "fd12::1", "::ffff:10.1.2.3", "127.0.0.1"]
)
def test_an_own_network_may_be_opened(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address))
    assert refusal_reason(ipaddress.ip_address(address), OWN[:4]) == ""


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.170.2", "169.254.100.1", "168.63.129.16", "0.0.0.0", "::"),
        *("fd00:ec2::254", "fd00:ec2::23", "::ffff:169.254.169.254", "64:ff9b::10.1.2.3"),
        *("fe80::1", "::10.1.2.3", "2002:a01:203::", "224.0.0.1", "255.255.255.255"),
    ],
)
def test_no_opened_network_reaches_what_is_never_a_task_s(address: str) -> None:
    assert refusal_reason(ipaddress.ip_address(address), OWN)


@pytest.mark.parametrize("text", ["10.0.0.0/15", "172.16.0.0/12", "192.168.7.0/24", "fd12::/48"])
def test_a_private_network_may_be_opened(text: str) -> None:
    assert str(parse_private_network(text)) == text


@pytest.mark.parametrize("text", ["8.8.8.0/24", "0.0.0.0/0", "169.254.0.0/16", "10.0.0.1/8", "x"])
def test_no_other_network_may_be_opened(text: str) -> None:
    with pytest.raises(ValueError, match=r"network|address|host bits"):
        parse_private_network(text)


def test_the_metadata_service_is_named() -> None:
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
def test_every_spelling_of_loopback_is_known_without_a_lookup(spelling: str) -> None:
    with pytest.raises(AddressNotAllowed, match="is loopback"):
        resolve_checked(spelling, 80, nobody)
    assert len(resolve_checked(spelling, 80, nobody, open_networks=LOOPBACK_NETWORKS)) == 1


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
def test_what_looks_like_an_address_and_is_none_is_never_looked_up(spelling: str) -> None:
    with pytest.raises(AddressNotAllowed):
        resolve_checked(spelling, 80, nobody)


@pytest.mark.parametrize("name", ["example.com", "0x7f.example", "127.0.0.1.nip.io", "a1", "xn--n"])
def test_names_are_no_addresses(name: str) -> None:
    assert parse_literal_address(name) is None


def test_a_public_literal_is_pinned_in_its_plain_form() -> None:
    assert resolve_checked("0x08080808", 80, nobody) == (ipaddress.ip_address("8.8.8.8"),)


def test_a_name_is_resolved_once_and_all_its_addresses_are_kept_in_order() -> None:
    asked: list[tuple[str, int]] = []

    def resolver(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["2606:4700:4700::1111", "1.1.1.1"]

    found = resolve_checked("One.Example.", 443, resolver)

    assert [str(address) for address in found] == ["2606:4700:4700::1111", "1.1.1.1"]
    assert asked == [("one.example", 443)]


@pytest.mark.parametrize("hidden", ["10.0.0.1", "::1", "169.254.169.254", "fe80::1%eth0"])
def test_one_refused_answer_refuses_the_name(hidden: str) -> None:
    with pytest.raises(AddressNotAllowed, match=r"mixed\.example may not be called"):
        resolve_checked("mixed.example", 80, lambda *_: ["1.1.1.1", hidden])


def test_no_answer_and_nonsense_are_no_address() -> None:
    with pytest.raises(Unresolved, match="no address"):
        resolve_checked("none.example", 80, lambda *_: [])
    with pytest.raises(Unresolved, match="answered 'what'"):
        resolve_checked("odd.example", 80, lambda *_: ["what"])


def test_canonical_folds_case_width_and_last_dots() -> None:
    assert canonical_host("ＥＸＡＭＰＬＥ．com.") == "example.com"
    assert canonical_host("[::1]") == "::1"
