"""Signed claims: only the very text that was signed is read, and only as it was signed."""

from hypothesis import given
from hypothesis import strategies as st

from punctual.auth.claim_tokens import MAX_CLAIM_CHARACTERS, ClaimTokens
from punctual.domain.claims import ClaimIdentity, OutputUpload
from punctual.domain.tenants.tokens import TENANT_REGEX

TOKENS = ClaimTokens(lambda: b"k" * 32)
OTHER_INSTALLATION = ClaimTokens(lambda: b"l" * 32)
TEXT_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

claims = st.builds(
    ClaimIdentity,
    st.from_regex(TENANT_REGEX, fullmatch=True),
    st.uuids().map(str),
    st.uuids().map(str),
    st.integers(1, 10_000),
    st.integers(1, 2**53),
)
uploads = st.builds(
    OutputUpload,
    st.integers(1, 5 * 1024**3),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=128),
)


@given(claims)
def test_signed_claim_is_read_as_it_was_signed(claim: ClaimIdentity) -> None:
    text = TOKENS.sign(claim)
    assert TOKENS.read(text) == claim
    assert len(text) <= MAX_CLAIM_CHARACTERS
    assert set(text) <= set(TEXT_CHARACTERS)
    assert OTHER_INSTALLATION.read(text) is None


@given(claims, st.data())
def test_altered_claim_is_not_read(claim: ClaimIdentity, data: st.DataObject) -> None:
    text = TOKENS.sign(claim)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(TEXT_CHARACTERS).filter(lambda char: char != text[place]))
    assert TOKENS.read(text[:place] + other + text[place + 1 :]) is None


@given(claims, st.data())
def test_truncated_or_extended_claim_is_not_read(claim: ClaimIdentity, data: st.DataObject) -> None:
    text = TOKENS.sign(claim)
    cut = data.draw(st.integers(0, len(text) - 1))
    added = data.draw(st.text(min_size=1))
    for other in (text[:cut], text[cut + 1 :], text + added, added + text):
        assert TOKENS.read(other) is None


@given(st.lists(claims, min_size=2, max_size=2, unique=True))
def test_parts_of_two_claims_make_no_claim(pair: list[ClaimIdentity]) -> None:
    (one, one_mac), (two, two_mac) = (TOKENS.sign(claim).split(".") for claim in pair)
    for text in (f"{one}.{two_mac}", f"{two}.{one_mac}", f"{one_mac}.{one}", one, one_mac):
        assert TOKENS.read(text) is None


@given(st.text())
def test_any_other_text_is_not_a_claim(text: str) -> None:
    assert TOKENS.read(text) is None


@given(claims, claims, uploads)
def test_upload_is_read_for_its_own_claim_only(
    claim: ClaimIdentity, other: ClaimIdentity, upload: OutputUpload
) -> None:
    text = TOKENS.sign_upload(claim, upload)
    assert TOKENS.read_upload(claim, text) == upload
    assert TOKENS.read(text) is None
    assert TOKENS.read_upload(claim, TOKENS.sign(claim)) is None
    assert (TOKENS.read_upload(other, text) is None) == (other != claim)
