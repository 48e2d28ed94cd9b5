"""A JWT is valid only if the issuer signed it for Punctual with a published key."""

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from punctual.auth.authenticator import Authenticator, TokenAuthenticator
from punctual.auth.bearer import Identity
from punctual.auth.https_fetch import FETCH_SECONDS, fetch_document
from punctual.auth.issuer import JwtVerifier as Verifier
from punctual.auth.issuer_config import IssuerConfig
from punctual.auth.issuer_keys import DISCOVERY_PATH as DISCOVERED
from punctual.auth.issuer_keys import IssuerKeys
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.roles import Role
from punctual.node.clock import ManualClock
from tests.support.builders import NOON
from tests.support.node.issuer import (
    DISCOVERY,
    KEYS,
    Issuer,
    an_issuer,
    forged,
    jwk_of,
    private_key,
)

ELSEWHERE = "https://id.example.com"
EXPIRES = datetime.fromtimestamp(int(NOON.timestamp()) + 300, UTC)
ADA = Identity("acme", "ada", Role.OPERATOR, expires_at=EXPIRES)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with an_issuer() as issuer:
        yield issuer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


def verifier(issuer: Issuer, clock: ManualClock, **trust: str) -> Verifier:
    trusted = issuer.trust._replace(**trust)
    return Verifier(trusted, fetch_document, clock, lambda: clock().timestamp())


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_what_the_issuer_signed_lets_in(issuer: Issuer, clock: ManualClock, algorithm: str) -> None:
    door = verifier(issuer, clock)
    text = issuer.token(NOON, algorithm)
    assert door.identify(text) == ADA
    assert door.cached_identity(text) == ADA
    assert issuer.asked == {DISCOVERY: 1, KEYS: 1}


def test_keys_are_fetched_once_for_many_tokens(issuer: Issuer, clock: ManualClock) -> None:
    door = verifier(issuer, clock)
    for number in range(20):
        who = door.identify(issuer.token(NOON, sub=f"user-{number}"))
        assert who is not None
        assert who.name == f"user-{number}"
    assert issuer.asked == {DISCOVERY: 1, KEYS: 1}


WRONG: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://id.example.com"},
    "no issuer": {"iss": None},
    "another audience": {"aud": "payroll"},
    "other audiences": {"aud": ["payroll", "wiki"]},
    "an audience that only holds ours": {"aud": "punctual-admin"},
    "no audience": {"aud": None},
    "no end": {"exp": None},
    "an end that is no number": {"exp": "tomorrow"},
    "an end that is true": {"exp": True},
    "an end that never comes": {"exp": 10**400},
    "expired": {"exp": int(NOON.timestamp()) - 30},
    "not yet": {"nbf": int(NOON.timestamp()) + 31},
    "issued in the future": {"iat": int(NOON.timestamp()) + 31},
    "a start that is no number": {"nbf": "x"},
    "no tenant": {"tenant": None},
    "an empty tenant": {"tenant": ""},
    "a tenant that is a path": {"tenant": "../acme"},
    "a tenant that is a key": {"tenant": "acme#03"},
    "several tenants": {"tenant": ["acme"]},
    "no role": {"role": None},
    "an unknown role": {"role": "root"},
    "a role in capitals": {"role": "ADMIN"},
    "unknown roles": {"role": ["root", 4, None]},
    "a role by number": {"role": 4},
    "no subject": {"sub": None},
    "an empty name": {"sub": ""},
    "a name that breaks lines": {"sub": "ada\nadmin"},
    "a name with half a character": {"sub": "ada\ud83d"},
    "a name without end": {"sub": "a" * 257},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_claim_that_is_wrong_lets_nobody_in(
    issuer: Issuer, clock: ManualClock, wrong: str
) -> None:
    claims = {**issuer.claims(NOON), **WRONG[wrong]}
    claims = {name: value for name, value in claims.items() if value is not None}
    payload = json.dumps(claims).encode()
    text = jwt.PyJWS().encode(payload, issuer.keys["ec"], "ES256", headers={"kid": "ec-0"})
    assert verifier(issuer, clock).identify(text) is None


def test_clocks_may_differ_a_little(issuer: Issuer, clock: ManualClock) -> None:
    at = int(NOON.timestamp())
    door = verifier(issuer, clock)
    assert door.identify(issuer.token(NOON, exp=at - 29)) is not None
    assert door.identify(issuer.token(NOON, nbf=at + 30, iat=at + 30)) is not None


def test_what_is_remembered_ends_with_the_token(issuer: Issuer, clock: ManualClock) -> None:
    door = verifier(issuer, clock)
    text = issuer.token(NOON, exp=int(NOON.timestamp()) + 5)
    assert door.identify(text) is not None
    clock.advance(timedelta(seconds=34))
    assert door.identify(text) is not None
    clock.advance(timedelta(seconds=1))
    assert door.cached_identity(text) is None
    assert door.identify(text) is None


def test_names_of_claims_are_the_deployments(issuer: Issuer, clock: ManualClock) -> None:
    door = verifier(issuer, clock, tenant_claim="https://x.example/org", role_claim="groups")
    claims: dict[str, Any] = {
        "https://x.example/org": "globex",
        "groups": ["staff", "viewer", "editor"],
    }
    who = door.identify(issuer.token(NOON, **claims))
    assert who == Identity("globex", "ada", Role.EDITOR, expires_at=EXPIRES)


def test_one_of_several_audiences_may_be_ours(issuer: Issuer, clock: ManualClock) -> None:
    assert verifier(issuer, clock).identify(issuer.token(NOON, aud=["wiki", "punctual"])) == ADA


def test_a_signature_of_another_key_is_none(issuer: Issuer, clock: ManualClock) -> None:
    other = private_key("ec", 1)
    headers = {"kid": "ec-0"}
    text = jwt.encode(issuer.claims(NOON), other, algorithm="ES256", headers=headers)
    assert verifier(issuer, clock).identify(text) is None


def test_a_claim_changed_afterwards_is_none(issuer: Issuer, clock: ManualClock) -> None:
    header, _, signature = issuer.token(NOON).split(".")
    claims = json.dumps(issuer.claims(NOON, role="admin")).encode()
    changed = urlsafe_b64encode(claims).rstrip(b"=").decode()
    assert verifier(issuer, clock).identify(f"{header}.{changed}.{signature}") is None


@pytest.mark.parametrize("algorithm", ["none", "None", "", "HS256", "RS1", "RS512", None, 7])
def test_an_algorithm_that_we_did_not_choose_is_none(
    issuer: Issuer, clock: ManualClock, algorithm: Any
) -> None:
    header = {"alg": algorithm, "kid": "rsa-0", "typ": "JWT"}
    assert verifier(issuer, clock).identify(forged(header, issuer.claims(NOON))) is None


def test_a_public_key_is_no_secret_to_sign_with(issuer: Issuer, clock: ManualClock) -> None:
    """The attack signs with HS256 and the public key as the secret."""
    public = issuer.keys["rsa"].public_key()
    header = {"alg": "HS256", "kid": "rsa-0"}
    for form in (Encoding.PEM, Encoding.DER):
        secret = public.public_bytes(form, PublicFormat.SubjectPublicKeyInfo)
        unsigned = forged(header, issuer.claims(NOON)).rpartition(".")[0]
        signature = hmac.digest(secret, unsigned.encode(), "sha256")
        text = f"{unsigned}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}"
        assert verifier(issuer, clock).identify(text) is None


def test_a_symmetric_key_that_is_published_is_passed_over(
    issuer: Issuer, clock: ManualClock
) -> None:
    issuer.publish({"kty": "oct", "kid": "oct-0", "k": "c2VjcmV0", "alg": "HS256", "use": "sig"})
    text = jwt.encode(
        issuer.claims(NOON), b"secret" * 8, algorithm="HS256", headers={"kid": "oct-0"}
    )
    assert verifier(issuer, clock).identify(text) is None


def test_a_key_is_for_its_own_kind_and_purpose(issuer: Issuer, clock: ManualClock) -> None:
    weak = rsa.generate_private_key(public_exponent=65_537, key_size=1_024)
    other = ec.generate_private_key(ec.SECP384R1())
    issuer.publish(
        jwk_of("rsa", "weak", weak),
        jwk_of("ec", "p384", other),
        jwk_of("rsa", "enc", issuer.keys["rsa"], use="enc"),
        jwk_of("rsa", "ps", issuer.keys["rsa"], alg="PS256"),
        {"kty": "RSA", "kid": "torn", "n": "!!!", "e": "AQAB"},
        {"kty": "RSA", "kid": ["x"]},
        "no key at all",  # type: ignore[arg-type]
    )
    door = verifier(issuer, clock)
    claims = issuer.claims(NOON)
    for kid, key, algorithm in (
        ("weak", weak, "RS256"),
        ("p384", other, "ES384"),
        ("enc", issuer.keys["rsa"], "RS256"),
        ("ps", issuer.keys["rsa"], "RS256"),
        ("torn", issuer.keys["rsa"], "RS256"),
        ("rsa-0", issuer.keys["ec"], "ES256"),
    ):
        with pytest.warns() if kid == "weak" else nullcontext():
            text = jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid})
        assert door.identify(text) is None, kid
    assert door.identify(issuer.token(NOON, "PS256", kid="ps")) == ADA


@pytest.mark.parametrize(
    "header",
    [{"alg": "RS256"}, {"alg": "RS256", "kid": 7}, {"kid": "rsa-0"}, [], "x", None],
)
def test_a_header_that_names_no_key_is_none(
    issuer: Issuer, clock: ManualClock, header: Any
) -> None:
    assert verifier(issuer, clock).identify(forged(header, issuer.claims(NOON))) is None
    assert issuer.asked == {}


def test_what_must_be_understood_and_is_not_is_none(issuer: Issuer, clock: ManualClock) -> None:
    headers = {"kid": "ec-0", "crit": ["x"], "x": 1}
    text = jwt.encode(issuer.claims(NOON), issuer.keys["ec"], "ES256", headers=headers)
    assert verifier(issuer, clock).identify(text) is None


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{", b"[" * 6_000, b'{"exp": NaN}'])
def test_a_payload_that_is_no_object_is_none(
    issuer: Issuer, clock: ManualClock, payload: bytes
) -> None:
    text = jwt.PyJWS().encode(payload, issuer.keys["ed"], "EdDSA", headers={"kid": "ed-0"})
    assert verifier(issuer, clock).identify(text) is None


def test_a_key_that_was_turned_is_found_with_the_first_token_that_shows_it(
    issuer: Issuer, clock: ManualClock
) -> None:
    door = verifier(issuer, clock)
    old = issuer.token(NOON)
    assert door.identify(old) == ADA
    issuer.keys["rsa"] = private_key("rsa", 1)
    issuer.pages[KEYS] = {"keys": [jwk_of("rsa", "rsa-1", issuer.keys["rsa"])]}
    clock.advance(timedelta(seconds=46))
    assert door.identify(issuer.token(NOON, kid="rsa-1")) == ADA
    assert issuer.asked[KEYS] == 2
    assert door.identify(old) is None, "and what it is not signed with any more is none"


def test_keys_that_nobody_has_make_no_flood(issuer: Issuer, clock: ManualClock) -> None:
    door = verifier(issuer, clock)
    assert door.identify(issuer.token(NOON)) == ADA
    for number in range(90):
        clock.advance(timedelta(seconds=1))
        assert door.identify(issuer.token(NOON, kid=f"made-up-{number}")) is None
    assert issuer.asked[KEYS] == 1 + 3


def test_an_issuer_that_is_down_makes_nobody_wrong(issuer: Issuer, clock: ManualClock) -> None:
    door = verifier(issuer, clock)
    issuer.down = True
    for _ in range(5):
        with pytest.raises(Unavailable):
            door.identify(issuer.token(NOON))
    assert issuer.asked == {DISCOVERY: 1}, "and it is not asked with each call"
    issuer.down = False
    clock.advance(timedelta(seconds=5))
    assert door.identify(issuer.token(NOON)) == ADA


def test_keys_that_are_known_outlive_an_outage(issuer: Issuer, clock: ManualClock) -> None:
    door = verifier(issuer, clock)
    text = issuer.token(NOON, exp=int(NOON.timestamp()) + 7_200)
    assert door.identify(text) is not None
    issuer.down = True
    clock.advance(timedelta(seconds=3_599))
    assert door.identify(text) is not None
    with pytest.raises(Unavailable):
        door.identify(issuer.token(clock(), kid="new"))
    clock.advance(timedelta(seconds=60))
    with pytest.raises(Unavailable):
        door.identify(text)


NOTHING: dict[str, tuple[str, Any]] = {
    "another issuer's": (DISCOVERY, {"issuer": "https://x.example", "jwks_uri": "https://x"}),
    "keys over plain http": (DISCOVERY, {"jwks_uri": "http://192.0.2.1/keys"}),
    "keys in a file": (DISCOVERY, {"jwks_uri": "file:///etc/hosts"}),
    "no address": (DISCOVERY, {}),
    "no JSON": (KEYS, b"<html>"),
    "deep": (KEYS, b"[" * 100_000),
    "no object": (KEYS, []),
    "no keys": (KEYS, {}),
    "keys by name": (KEYS, {"keys": {}}),
    "too much": (KEYS, b" " * 300_000),
    "nothing": (KEYS, None),
}


@pytest.mark.parametrize("what", NOTHING)
def test_what_is_published_wrongly_is_an_outage(
    issuer: Issuer, clock: ManualClock, what: str
) -> None:
    path, page = NOTHING[what]
    if path == DISCOVERY:
        page = {"issuer": issuer.address, **page}
    issuer.pages[path] = page
    with pytest.raises(Unavailable):
        verifier(issuer, clock).identify(issuer.token(NOON))


@pytest.mark.parametrize("host", ["127.0.0.1:9001", "localhost", "[::1]:80"])
def test_what_is_published_elsewhere_leads_to_nothing_on_loopback(host: str) -> None:
    """The runtime API of Lambda listens there, and a request would take the next invocation."""
    asked: list[str] = []

    def fetch(address: str) -> bytes:
        asked.append(address)
        return json.dumps({"issuer": ELSEWHERE, "jwks_uri": f"http://{host}/next"}).encode()

    with pytest.raises(Unavailable, match="no safe URL"):
        IssuerKeys(ELSEWHERE, fetch, lambda: 0.0).find("rsa-0", "RS256")
    assert asked == [ELSEWHERE + DISCOVERED]


def test_a_redirect_is_not_followed(issuer: Issuer, clock: ManualClock) -> None:
    def elsewhere(handler: Any) -> None:
        handler.send_response(302)
        handler.send_header("location", KEYS)
        handler.send_header("content-length", "0")
        handler.end_headers()

    issuer.pages["/realm/moved"] = elsewhere
    discovery = issuer.pages[DISCOVERY]
    discovery["jwks_uri"] = discovery["jwks_uri"].replace(KEYS, "/realm/moved")
    with pytest.raises(Unavailable, match="answered 302"):
        verifier(issuer, clock).identify(issuer.token(NOON))


def test_an_answer_that_drips_is_cut_off(
    issuer: Issuer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte is within the socket timeout, but all bytes would take ten seconds."""
    monkeypatch.setattr("punctual.auth.https_fetch.FETCH_SECONDS", 0.2)
    enough, whole = Event(), Event()

    def drip(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "200")
        handler.end_headers()
        with suppress(OSError):
            for _ in range(200):
                handler.wfile.write(b" ")
                enough.wait(0.05)
            whole.set()

    issuer.pages[KEYS] = drip
    with pytest.raises(Unavailable):
        verifier(issuer, clock).identify(issuer.token(NOON))
    assert not whole.is_set()
    enough.set()


def test_addresses_that_swallow_everything_take_no_more_than_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a full timeout for each address, a call would wait too long."""
    waited: list[float] = []

    def swallow(_address: tuple[str, int], timeout: float) -> Any:
        waited.append(timeout)
        raise TimeoutError

    places = [(0, 0, 0, "", (f"192.0.2.{number}", 443)) for number in range(40)]
    monkeypatch.setattr("punctual.auth.https_fetch.getaddrinfo", lambda *_args, **_: places)
    monkeypatch.setattr("punctual.auth.https_fetch.create_connection", swallow)
    with pytest.raises(Unavailable, match="TimeoutError"):
        fetch_document(f"{ELSEWHERE}/keys")
    assert len(waited) == 40
    assert waited[0] == FETCH_SECONDS / 2
    assert sum(waited) <= FETCH_SECONDS


def test_addresses_that_refuse_at_once_cost_the_next_one_nothing(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The IPv6 address comes first and has no route."""
    port = int(issuer.address.split(":")[2].split("/")[0])
    places = [(0, 0, 0, "", (at, port)) for at in ["::1"] * 40 + ["127.0.0.1"]]
    monkeypatch.setattr("punctual.auth.https_fetch.getaddrinfo", lambda *_args, **_: places)
    assert (
        json.loads(fetch_document(f"http://localhost:{port}{DISCOVERY}"))["issuer"]
        == issuer.address
    )


def test_nobody_there_is_an_outage(clock: ManualClock) -> None:
    nobody = IssuerConfig("http://127.0.0.1:1", "punctual")
    door = Verifier(nobody, fetch_document, clock, lambda: 0.0)
    with pytest.raises(Unavailable, match="ConnectionRefusedError"):
        door.identify(forged({"alg": "RS256", "kid": "k"}, {}))


def test_a_door_tells_by_its_form_whose_a_token_is(issuer: Issuer, clock: ManualClock) -> None:
    ours: list[str] = []

    class Ours(TokenAuthenticator):
        def __init__(self) -> None: ...

        def identify(self, text: str) -> Identity | None:
            ours.append(text)
            return None

    door = Authenticator(Ours(), verifier(issuer, clock))
    assert door.identify(issuer.token(NOON)) == ADA
    assert door.identify("pnc_a") is None
    assert Authenticator(Ours()).identify("a.b.c") is None
    assert ours == ["pnc_a", "a.b.c"]
