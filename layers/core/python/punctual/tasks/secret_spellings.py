"""List the forms in which a secret may appear in output, plain and encoded.

Deliberately disguised secrets, for example reversed text, are not found.
"""

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

JSON_LEVELS = 3  # log shippers nest JSON in JSON strings
# Go and others escape these characters, so that JSON can stand in a page.
JSON_IN_PAGE = (
    *(("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")),
    *(("\u2028", "\\u2028"), ("\u2029", "\\u2029")),
)
JSON_SLASH = (("/", "\\/"),)  # PHP escapes it
MIN_LINE_CHARACTERS = 8  # of a line of a multi-line secret; shorter lines match any text
MIN_ENCODED_CHARACTERS = 8  # of hex and base64; shorter forms match any text
BASE64_LINE_LENGTHS = (64, 76)  # 64: openssl and PEM; 76: the command base64
_UPPER_ESCAPE = re.compile(r"%[0-9A-F]{2}|\\u[0-9a-f]{4}")


def spellings_of(secret: str) -> set[bytes]:
    """Return every form in which the secret, or one of its lines, may appear."""
    values = {secret, secret.strip(), "\n".join(secret.splitlines()), *_lines(secret)}
    texts = {text for value in values if value for text in _texts(value)}
    return {text.encode("utf-8", "surrogatepass") for text in texts if text}


def _lines(secret: str) -> Iterator[str]:
    """Yield the longer lines of a multi-line secret.

    Programs print and compare single lines, for example of a PEM key.
    """
    lines = secret.splitlines()
    for line in lines if len(lines) > 1 else ():
        stripped = line.strip()
        if len(stripped) >= MIN_LINE_CHARACTERS and not stripped.startswith("-----"):
            yield stripped


def _texts(value: str) -> Iterator[str]:
    yield value
    yield from _percent_encoded(value)
    yield from _in_json(value)
    yield from _in_markup(value)
    data = value.encode("utf-8", "surrogatepass")
    if len(data) * 2 >= MIN_ENCODED_CHARACTERS:
        yield data.hex()
        yield data.hex().upper()
    yield from _base64(data)


def _percent_encoded(value: str) -> Iterator[str]:
    """Yield the percent-encoded forms. Encoders differ in the characters that they keep."""
    for text in (
        quote(value, safe="", errors="surrogatepass"),
        quote(value, errors="surrogatepass"),
        quote(value, safe="!'()*", errors="surrogatepass"),  # as encodeURIComponent
        quote(value, safe=";/?:@&=+$,#!'()*", errors="surrogatepass"),  # as encodeURI
        quote_plus(value, errors="surrogatepass"),
        quote_plus(value, safe="*", errors="surrogatepass"),
        quote_plus(value, safe="*", errors="surrogatepass").replace("~", "%7E"),  # as Java
        quote(value, safe="", errors="surrogatepass").replace("~", "%7E"),
    ):
        yield text
        yield _with_other_case(text)


def _in_json(value: str) -> Iterator[str]:
    """Yield the forms in JSON, also nested. An encoder uses one style at each level."""
    for ensure_ascii in (True, False):
        for characters in ((), JSON_IN_PAGE, JSON_SLASH):
            text = value
            for _ in range(JSON_LEVELS):
                text = json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]
                for character, escape in characters:
                    text = text.replace(character, escape)
                yield text
                yield _with_other_case(text)
                yield text.replace("/", "\\/")


def _in_markup(value: str) -> Iterator[str]:
    """Yield the forms in HTML and XML. Encoders differ in how they write quotation marks."""
    yield html.escape(value, quote=False)
    for apostrophe in ("&#x27;", "&#39;", "&#039;", "&apos;"):
        for mark in ("&quot;", "&#34;"):
            text = html.escape(value, quote=False)
            yield text.replace('"', mark).replace("'", apostrophe)


def _with_other_case(text: str) -> str:
    """Return the text with %XX escapes in lower case and \\uxxxx escapes in upper case."""

    def other(match: re.Match[str]) -> str:
        escape = match.group()
        return escape.lower() if escape[0] == "%" else f"\\u{escape[2:].upper()}"

    return _UPPER_ESCAPE.sub(other, text)


def _base64(data: bytes) -> Iterator[str]:
    """Yield the base64 forms of the data alone, of its lines, and inside longer data.

    Base64 turns 3 bytes into 4 characters. So data inside longer data has three forms, one for
    each offset in a group of 3 bytes. Characters that depend on neighbouring bytes are cut off.
    """
    encoded = b64encode(data).decode()
    forms = {encoded, encoded.rstrip("=")}
    for length in BASE64_LINE_LENGTHS:
        lines = [encoded[start : start + length] for start in range(0, len(encoded), length)]
        forms.update(lines)
    for offset in range(3):
        text = b64encode(bytes(offset) + data + bytes(2)).decode()
        forms.add(text[-(-offset * 8 // 6) : (offset + len(data)) * 8 // 6])
    for form in forms:
        if len(form) < MIN_ENCODED_CHARACTERS:
            continue
        yield form
        yield form.replace("+", "-").replace("/", "_")
