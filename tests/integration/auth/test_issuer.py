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

from punctual.auth.authenticator import Authenticator, Identity, TokenAuthenticator
from punctual.auth.https_fetch import FETCH_SECONDS, fetch_document
from punctual.auth.issuer import JwtVerifier as Verifier
from punctual.auth.issuer_config import IssuerConfig
from punctual.auth.issuer_keys import DISCOVERY_PATH as DISCOVERED
from punctual.auth.issuer_keys import IssuerKeys
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.roles import Role
from tests.support.builders import NOON, ManualClock
from tests.support.node.issuer import (
    DISCOVERY,
    KEYS,
    Issuer,
    an_issuer,
    encode_jwt,
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
def test_token_signed_by_the_issuer_is_accepted(
    issuer: Issuer, clock: ManualClock, algorithm: str
) -> None:
    checker = verifier(issuer, clock)
    text = issuer.token(NOON, algorithm)
    assert checker.identify(text) == ADA
    assert checker.cached_identity(text) == ADA
    assert issuer.request_counts == {DISCOVERY: 1, KEYS: 1}


def test_issuer_keys_are_fetched_once_for_many_tokens(issuer: Issuer, clock: ManualClock) -> None:
    checker = verifier(issuer, clock)
    for number in range(20):
        identity = checker.identify(issuer.token(NOON, sub=f"user-{number}"))
        assert identity is not None
        assert identity.name == f"user-{number}"
    assert issuer.request_counts == {DISCOVERY: 1, KEYS: 1}


WRONG: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://id.example.com"},
    "no issuer": {"iss": None},
    "another audience": {"aud": "payroll"},
    "other audiences": {"aud": ["payroll", "wiki"]},
    "an audience that only holds ours": {"aud": "punctual-admin"},
    "no audience": {"aud": None},
    "no end": {"exp": None},
    "an end that is not a number": {"exp": "tomorrow"},
    "an end that is true": {"exp": True},
    "an end too far away": {"exp": 10**400},
    "expired": {"exp": int(NOON.timestamp()) - 30},
    "not yet": {"nbf": int(NOON.timestamp()) + 31},
    "issued in the future": {"iat": int(NOON.timestamp()) + 31},
    "a start that is not a number": {"nbf": "x"},
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
    "a name that is too long": {"sub": "a" * 257},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_token_with_a_wrong_claim_is_refused(
    issuer: Issuer, clock: ManualClock, wrong: str
) -> None:
    claims = {**issuer.claims(NOON), **WRONG[wrong]}
    claims = {name: value for name, value in claims.items() if value is not None}
    payload = json.dumps(claims).encode()
    text = jwt.PyJWS().encode(payload, issuer.keys["ec"], "ES256", headers={"kid": "ec-0"})
    assert verifier(issuer, clock).identify(text) is None


def test_token_is_accepted_within_the_clock_tolerance(issuer: Issuer, clock: ManualClock) -> None:
    at = int(NOON.timestamp())
    checker = verifier(issuer, clock)
    assert checker.identify(issuer.token(NOON, exp=at - 29)) is not None
    assert checker.identify(issuer.token(NOON, nbf=at + 30, iat=at + 30)) is not None


def test_cached_identity_expires_with_the_token(issuer: Issuer, clock: ManualClock) -> None:
    checker = verifier(issuer, clock)
    text = issuer.token(NOON, exp=int(NOON.timestamp()) + 5)
    assert checker.identify(text) is not None
    clock.advance(timedelta(seconds=34))
    assert checker.identify(text) is not None
    clock.advance(timedelta(seconds=1))
    assert checker.cached_identity(text) is None
    assert checker.identify(text) is None


def test_claim_names_are_configurable(issuer: Issuer, clock: ManualClock) -> None:
    checker = verifier(issuer, clock, tenant_claim="https://x.example/org", role_claim="groups")
    claims: dict[str, Any] = {
        "https://x.example/org": "globex",
        "groups": ["staff", "viewer", "editor"],
    }
    identity = checker.identify(issuer.token(NOON, **claims))
    assert identity == Identity("globex", "ada", Role.EDITOR, expires_at=EXPIRES)


def test_token_with_several_audiences_is_accepted(issuer: Issuer, clock: ManualClock) -> None:
    assert verifier(issuer, clock).identify(issuer.token(NOON, aud=["wiki", "punctual"])) == ADA


def test_signature_of_another_key_is_refused(issuer: Issuer, clock: ManualClock) -> None:
    other = private_key("ec", 1)
    headers = {"kid": "ec-0"}
    text = jwt.encode(issuer.claims(NOON), other, algorithm="ES256", headers=headers)
    assert verifier(issuer, clock).identify(text) is None


def test_changed_claim_is_refused(issuer: Issuer, clock: ManualClock) -> None:
    header, _, signature = issuer.token(NOON).split(".")
    claims = json.dumps(issuer.claims(NOON, role="admin")).encode()
    changed = urlsafe_b64encode(claims).rstrip(b"=").decode()
    assert verifier(issuer, clock).identify(f"{header}.{changed}.{signature}") is None


@pytest.mark.parametrize("algorithm", ["none", "None", "", "HS256", "RS1", "RS512", None, 7])
def test_algorithm_outside_the_allowed_list_is_refused(
    issuer: Issuer, clock: ManualClock, algorithm: Any
) -> None:
    header = {"alg": algorithm, "kid": "rsa-0", "typ": "JWT"}
    assert verifier(issuer, clock).identify(encode_jwt(header, issuer.claims(NOON))) is None


def test_public_key_as_hmac_secret_is_refused(issuer: Issuer, clock: ManualClock) -> None:
    """The attack signs with HS256 and the public key as the secret."""
    public = issuer.keys["rsa"].public_key()
    header = {"alg": "HS256", "kid": "rsa-0"}
    for form in (Encoding.PEM, Encoding.DER):
        secret = public.public_bytes(form, PublicFormat.SubjectPublicKeyInfo)
        unsigned = encode_jwt(header, issuer.claims(NOON)).rpartition(".")[0]
        signature = hmac.digest(secret, unsigned.encode(), "sha256")
        text = f"{unsigned}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}"
        assert verifier(issuer, clock).identify(text) is None


def test_published_symmetric_key_is_ignored(issuer: Issuer, clock: ManualClock) -> None:
    issuer.publish({"kty": "oct", "kid": "oct-0", "k": "c2VjcmV0", "alg": "HS256", "use": "sig"})
    text = jwt.encode(
        issuer.claims(NOON), b"secret" * 8, algorithm="HS256", headers={"kid": "oct-0"}
    )
    assert verifier(issuer, clock).identify(text) is None


def test_key_of_another_type_or_use_is_refused(issuer: Issuer, clock: ManualClock) -> None:
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
    checker = verifier(issuer, clock)
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
        assert checker.identify(text) is None, kid
    assert checker.identify(issuer.token(NOON, "PS256", kid="ps")) == ADA


@pytest.mark.parametrize(
    "header",
    [{"alg": "RS256"}, {"alg": "RS256", "kid": 7}, {"kid": "rsa-0"}, [], "x", None],
)
def test_header_without_a_key_id_is_refused(
    issuer: Issuer, clock: ManualClock, header: Any
) -> None:
    assert verifier(issuer, clock).identify(encode_jwt(header, issuer.claims(NOON))) is None
    assert issuer.request_counts == {}


def test_unknown_critical_header_is_refused(issuer: Issuer, clock: ManualClock) -> None:
    headers = {"kid": "ec-0", "crit": ["x"], "x": 1}
    text = jwt.encode(issuer.claims(NOON), issuer.keys["ec"], "ES256", headers=headers)
    assert verifier(issuer, clock).identify(text) is None


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{", b"[" * 6_000, b'{"exp": NaN}'])
def test_payload_that_is_not_an_object_is_refused(
    issuer: Issuer, clock: ManualClock, payload: bytes
) -> None:
    text = jwt.PyJWS().encode(payload, issuer.keys["ed"], "EdDSA", headers={"kid": "ed-0"})
    assert verifier(issuer, clock).identify(text) is None


def test_rotated_key_is_found_with_the_first_token_signed_by_it(
    issuer: Issuer, clock: ManualClock
) -> None:
    checker = verifier(issuer, clock)
    old = issuer.token(NOON)
    assert checker.identify(old) == ADA
    issuer.keys["rsa"] = private_key("rsa", 1)
    issuer.pages[KEYS] = {"keys": [jwk_of("rsa", "rsa-1", issuer.keys["rsa"])]}
    clock.advance(timedelta(seconds=46))
    assert checker.identify(issuer.token(NOON, kid="rsa-1")) == ADA
    assert issuer.request_counts[KEYS] == 2
    assert checker.identify(old) is None, "a token of the removed key is refused"


def test_unknown_key_ids_cause_few_fetches(issuer: Issuer, clock: ManualClock) -> None:
    checker = verifier(issuer, clock)
    assert checker.identify(issuer.token(NOON)) == ADA
    for number in range(90):
        clock.advance(timedelta(seconds=1))
        assert checker.identify(issuer.token(NOON, kid=f"made-up-{number}")) is None
    assert issuer.request_counts[KEYS] == 1 + 3


def test_unavailable_issuer_is_an_outage_not_a_refusal(issuer: Issuer, clock: ManualClock) -> None:
    checker = verifier(issuer, clock)
    issuer.down = True
    for _ in range(5):
        with pytest.raises(Unavailable):
            checker.identify(issuer.token(NOON))
    assert issuer.request_counts == {DISCOVERY: 1}, "the issuer is not asked on each call"
    issuer.down = False
    clock.advance(timedelta(seconds=5))
    assert checker.identify(issuer.token(NOON)) == ADA


def test_cached_keys_are_used_during_an_outage(issuer: Issuer, clock: ManualClock) -> None:
    checker = verifier(issuer, clock)
    text = issuer.token(NOON, exp=int(NOON.timestamp()) + 7_200)
    assert checker.identify(text) is not None
    issuer.down = True
    clock.advance(timedelta(seconds=3_599))
    assert checker.identify(text) is not None
    with pytest.raises(Unavailable):
        checker.identify(issuer.token(clock(), kid="new"))
    clock.advance(timedelta(seconds=60))
    with pytest.raises(Unavailable):
        checker.identify(text)


INVALID_PAGES: dict[str, tuple[str, Any]] = {
    "document of another issuer": (
        DISCOVERY,
        {"issuer": "https://x.example", "jwks_uri": "https://x"},
    ),
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


@pytest.mark.parametrize("case", INVALID_PAGES)
def test_invalid_published_document_is_an_outage(
    issuer: Issuer, clock: ManualClock, case: str
) -> None:
    path, page = INVALID_PAGES[case]
    if path == DISCOVERY:
        page = {"issuer": issuer.address, **page}
    issuer.pages[path] = page
    with pytest.raises(Unavailable):
        verifier(issuer, clock).identify(issuer.token(NOON))


@pytest.mark.parametrize("host", ["127.0.0.1:9001", "localhost", "[::1]:80"])
def test_key_url_on_loopback_is_refused_for_a_remote_issuer(host: str) -> None:
    """The runtime API of Lambda listens there, and a request would take the next invocation."""
    fetched: list[str] = []

    def fetch(address: str) -> bytes:
        fetched.append(address)
        return json.dumps({"issuer": ELSEWHERE, "jwks_uri": f"http://{host}/next"}).encode()

    with pytest.raises(Unavailable, match="no safe URL"):
        IssuerKeys(ELSEWHERE, fetch, lambda: 0.0).find("rsa-0", "RS256")
    assert fetched == [ELSEWHERE + DISCOVERED]


def test_redirect_of_the_issuer_is_not_followed(issuer: Issuer, clock: ManualClock) -> None:
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


def test_slow_answer_of_the_issuer_is_aborted(
    issuer: Issuer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte is within the socket timeout, but all bytes would take ten seconds."""
    monkeypatch.setattr("punctual.auth.https_fetch.FETCH_SECONDS", 0.2)
    stop, complete = Event(), Event()

    def drip(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "200")
        handler.end_headers()
        with suppress(OSError):
            for _ in range(200):
                handler.wfile.write(b" ")
                stop.wait(0.05)
            complete.set()

    issuer.pages[KEYS] = drip
    with pytest.raises(Unavailable):
        verifier(issuer, clock).identify(issuer.token(NOON))
    assert not complete.is_set()
    stop.set()


def test_silent_addresses_share_the_fetch_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a full timeout for each address, a call would wait too long."""
    timeouts: list[float] = []

    def hang(_address: tuple[str, int], timeout: float) -> Any:
        timeouts.append(timeout)
        raise TimeoutError

    addresses = [(0, 0, 0, "", (f"192.0.2.{number}", 443)) for number in range(40)]
    monkeypatch.setattr("punctual.auth.https_fetch.getaddrinfo", lambda *_args, **_: addresses)
    monkeypatch.setattr("punctual.auth.https_fetch.create_connection", hang)
    with pytest.raises(Unavailable, match="TimeoutError"):
        fetch_document(f"{ELSEWHERE}/keys")
    assert len(timeouts) == 40
    assert timeouts[0] == FETCH_SECONDS / 2
    assert sum(timeouts) <= FETCH_SECONDS


def test_refusing_addresses_leave_the_timeout_to_the_next(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The IPv6 address comes first and has no route."""
    port = int(issuer.address.split(":")[2].split("/")[0])
    addresses = [(0, 0, 0, "", (at, port)) for at in ["::1"] * 40 + ["127.0.0.1"]]
    monkeypatch.setattr("punctual.auth.https_fetch.getaddrinfo", lambda *_args, **_: addresses)
    assert (
        json.loads(fetch_document(f"http://localhost:{port}{DISCOVERY}"))["issuer"]
        == issuer.address
    )


def test_refused_connection_to_the_issuer_is_an_outage(clock: ManualClock) -> None:
    config = IssuerConfig("http://127.0.0.1:1", "punctual")
    checker = Verifier(config, fetch_document, clock, lambda: 0.0)
    with pytest.raises(Unavailable, match="ConnectionRefusedError"):
        checker.identify(encode_jwt({"alg": "RS256", "kid": "k"}, {}))


def test_authenticator_chooses_the_verifier_by_the_token_format(
    issuer: Issuer, clock: ManualClock
) -> None:
    texts: list[str] = []

    class RecordingAuthenticator(TokenAuthenticator):
        def __init__(self) -> None: ...

        def identify(self, text: str) -> Identity | None:
            texts.append(text)
            return None

    checker = Authenticator(RecordingAuthenticator(), verifier(issuer, clock))
    assert checker.identify(issuer.token(NOON)) == ADA
    assert checker.identify("pnc_a") is None
    assert Authenticator(RecordingAuthenticator()).identify("a.b.c") is None
    assert texts == ["pnc_a", "a.b.c"]
