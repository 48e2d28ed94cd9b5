"""No secret passes the redaction, however a program encodes, nests or cuts it."""

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from itertools import pairwise
from urllib.parse import quote, quote_plus

from hypothesis import example, given
from hypothesis import strategies as st

from punctual.tasks.redaction import REDACTION_MARK, Redactor

Encode = Callable[[str], str]

# A secret has at least one character that makes it unlike any text around it here.
SECRETS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=8, max_size=30
).filter(lambda text: text.strip() == text and len(text.splitlines()) == 1)
LINES = st.lists(SECRETS, min_size=2, max_size=4)
AROUND = st.text("|", max_size=5)


def in_json(text: str, levels: int, *, ascii_only: bool) -> str:
    for _ in range(levels):
        text = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    return text


def as_go(text: str) -> str:
    encoded = json.dumps(text, ensure_ascii=False)[1:-1]
    for character in "<>&\u2028\u2029":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return encoded


def lower_escapes(text: str) -> str:
    first, *parts = text.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in parts)])


ENCODERS: dict[str, Encode] = {
    "plain": str,
    "hex": lambda text: text.encode().hex(),
    "upper hex": lambda text: text.encode().hex().upper(),
    "percent": lambda text: quote(text, safe=""),
    "lower percent": lambda text: lower_escapes(quote(text, safe="")),
    "path": quote,
    "lower path": lambda text: lower_escapes(quote(text)),
    "form": quote_plus,
    "lower form": lambda text: lower_escapes(quote_plus(text)),
    "component": lambda text: quote(text, safe="!'()*"),
    "address": lambda text: quote(text, safe=";/?:@&=+$,#!'()*"),
    "base64": lambda text: b64encode(text.encode()).decode(),
    "urlsafe base64": lambda text: urlsafe_b64encode(text.encode()).decode(),
    "json": lambda text: in_json(text, 1, ascii_only=True),
    "json twice": lambda text: in_json(text, 2, ascii_only=True),
    "json three times": lambda text: in_json(text, 3, ascii_only=True),
    "wide json": lambda text: in_json(text, 1, ascii_only=False),
    "wide json twice": lambda text: in_json(text, 2, ascii_only=False),
    "json of a page": as_go,
    "json of a page twice": lambda text: as_go(as_go(text)),
    "json of PHP twice": lambda text: in_json(
        in_json(text, 1, ascii_only=True).replace("/", "\\/"), 1, ascii_only=True
    ).replace("/", "\\/"),
}


@given(SECRETS, st.sampled_from(sorted(ENCODERS)), AROUND, AROUND)
@example("a/b<c>&d'e\"f~g", "json of a page twice", "", "")
@example("p/q/r/s/t", "json of PHP twice", "|", "|")
def test_encoded_secret_is_replaced(secret: str, name: str, before: str, after: str) -> None:
    form = ENCODERS[name](secret)
    shown = Redactor(frozenset({secret})).text(f"{before}{form}{after}")
    assert shown == f"{before}{REDACTION_MARK}{after}"


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.sampled_from(sorted(ENCODERS)), st.data())
def test_each_line_of_a_secret_is_replaced(
    lines: list[str], line_end: str, name: str, data: st.DataObject
) -> None:
    line = data.draw(st.sampled_from(lines))
    if line.startswith("-----"):
        return
    redactor = Redactor(frozenset({line_end.join(lines)}))
    assert redactor.text(f"|{ENCODERS[name](line)}|") == f"|{REDACTION_MARK}|"
    assert redactor.text("\n".join(lines)) == REDACTION_MARK


@given(SECRETS, st.binary(max_size=7), st.binary(max_size=7), st.booleans())
def test_secret_inside_longer_base64_is_replaced(
    secret: str, before: bytes, after: bytes, urlsafe: bool
) -> None:
    data = secret.encode()
    encode = urlsafe_b64encode if urlsafe else b64encode
    text = encode(before + data + after).decode()
    shown = Redactor(frozenset({secret})).text(text)
    # The characters that depend on the secret alone.
    core = text[-(-len(before) * 8 // 6) : (len(before) + len(data)) * 8 // 6]
    assert core not in shown
    assert len(shown.replace(REDACTION_MARK, "")) <= len(text) - len(core)


@given(
    st.lists(SECRETS, min_size=1, max_size=3),
    st.lists(st.sampled_from(sorted(ENCODERS)), min_size=1, max_size=4),
    st.lists(st.integers(0, 300), max_size=6),
)
def test_pieces_are_redacted_like_the_whole(
    secrets: list[str], names: list[str], cuts: list[int]
) -> None:
    data = "|".join(ENCODERS[name](secret) for secret in secrets for name in names).encode()
    redactor = Redactor(frozenset(secrets))
    stream = redactor.stream()
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(places)]
    shown = b"".join(map(stream.feed, pieces)) + stream.flush()
    assert shown == redactor.data(data)
    assert redactor.data(shown) == shown
