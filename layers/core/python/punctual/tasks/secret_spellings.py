"""The forms in which a secret may stand in output: as it is, and as programs encode it.

Forms that hide a secret on purpose, such as its letters in reverse, are not found.
"""

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

JSON_LEVELS = 3  # JSON inside JSON inside JSON, as log shippers nest it
MIN_LINE_CHARACTERS = 8  # of a secret with several lines; shorter lines stand in any text
MIN_ENCODED_CHARACTERS = 8  # of hex and base64; shorter forms stand in any text
BASE64_LINE_LENGTHS = (64, 76)  # of openssl and PEM, and of the command base64
_UPPER_ESCAPE = re.compile(r"%[0-9A-F]{2}|\\u[0-9a-f]{4}")


def spellings_of(secret: str) -> set[bytes]:
    """Return every form in which the secret, or one of its lines, may stand."""
    values = {secret, secret.strip(), *_lines(secret)}
    texts = {text for value in values if value for text in _texts(value)}
    return {text.encode("utf-8", "surrogatepass") for text in texts if text}


def _lines(secret: str) -> Iterator[str]:
    """Yield the lines of a secret such as a PEM key: programs print and compare single lines."""
    lines = secret.splitlines()
    for line in lines if len(lines) > 1 else ():
        bare = line.strip()
        if len(bare) >= MIN_LINE_CHARACTERS and not bare.startswith("-----"):
            yield bare


def _texts(value: str) -> Iterator[str]:
    yield value
    yield from _percent_encoded(value)
    yield from _in_json(value)
    yield html.escape(value)
    data = value.encode("utf-8", "surrogatepass")
    if len(data) * 2 >= MIN_ENCODED_CHARACTERS:
        yield data.hex()
        yield data.hex().upper()
    yield from _base64(data)


def _percent_encoded(value: str) -> Iterator[str]:
    """Yield what encoders of URLs write; they differ in what they leave as it is."""
    for text in (
        quote(value, safe="", errors="surrogatepass"),
        quote(value, errors="surrogatepass"),
        quote(value, safe="!'()*", errors="surrogatepass"),
        quote_plus(value, errors="surrogatepass"),
        quote_plus(value, safe="*", errors="surrogatepass"),
    ):
        yield text
        yield _with_other_case(text)


def _in_json(value: str) -> Iterator[str]:
    for ensure_ascii in (True, False):
        text = value
        for _ in range(JSON_LEVELS):
            text = json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]
            yield text
            yield _with_other_case(text)
            yield text.replace("/", "\\/")


def _with_other_case(text: str) -> str:
    """Return the text with hexadecimal digits of %XX in lower case, of \\uxxxx in upper case."""

    def other(found: re.Match[str]) -> str:
        escape = found.group()
        return escape.lower() if escape[0] == "%" else f"\\u{escape[2:].upper()}"

    return _UPPER_ESCAPE.sub(other, text)


def _base64(data: bytes) -> Iterator[str]:
    """Yield base64 of the data alone, in lines, and as a part of longer data.

    Base64 turns 3 bytes into 4 characters, so a part of longer data has three forms: one for each
    place at which it may begin in a group of 3. Characters that the neighbours change are left out.
    """
    whole = b64encode(data).decode()
    forms = {whole, whole.rstrip("=")}
    for length in BASE64_LINE_LENGTHS:
        lines = [whole[at : at + length] for at in range(0, len(whole), length)]
        forms.update(lines)
    for before in range(3):
        text = b64encode(bytes(before) + data + bytes(2)).decode()
        forms.add(text[-(-before * 8 // 6) : (before + len(data)) * 8 // 6])
    for form in forms:
        if len(form) < MIN_ENCODED_CHARACTERS:
            continue
        yield form
        yield form.replace("+", "-").replace("/", "_")
