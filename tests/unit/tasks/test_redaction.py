"""Secrets are found in the forms in which programs print them."""

import html
import json
import time
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest

from punctual.tasks.redaction import REDACTION_MARK, Redactor

SECRET = "p/s+w?rd \"&'é~ü"
PEM = "\n".join(
    [
        "-----BEGIN PRIVATE KEY-----",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
        "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu",
        "NMoSfm76oqFvAp8Gy0iz5sxjZmSnXyCdPEovGhLa0VzMaQ8s+CLOyS56YyCFGeJZ",
        "-----END PRIVATE KEY-----",
        "",
    ]
)


def redacted(text: str, secret: str = SECRET) -> str:
    return Redactor(frozenset({secret})).text(text)


def lower_escapes(text: str) -> str:
    return "".join(
        f"%{part[:2].lower()}{part[2:]}" if number else part
        for number, part in enumerate(text.split("%"))
    )


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        lower_escapes(quote(SECRET, safe="")),
        json.dumps(SECRET)[1:-1],
        json.dumps(json.dumps(SECRET))[1:-1],
        json.dumps(json.dumps({"token": SECRET}, ensure_ascii=False), ensure_ascii=False),
        json.dumps(json.dumps(json.dumps(SECRET)))[1:-1],
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        b64encode(SECRET.encode()).decode(),
        b64encode(SECRET.encode()).decode().rstrip("="),
        urlsafe_b64encode(SECRET.encode()).decode(),
        html.escape(SECRET),
    ],
)
def test_secret_is_found_as_programs_encode_it(form: str) -> None:
    text_shown = redacted(f"<{form}>")
    assert REDACTION_MARK in text_shown
    assert len(text_shown) <= len(f'<"{{\\"token\\": \\"{REDACTION_MARK}\\"}}">')


@pytest.mark.parametrize("user", ["", "a", "ab", "abc", "user:"])
def test_secret_is_found_inside_longer_base64(user: str) -> None:
    header = b64encode(f"{user}{SECRET}:more".encode()).decode()
    text_shown = redacted(f"Authorization: Basic {header}")
    assert REDACTION_MARK in text_shown
    rest = text_shown.replace(REDACTION_MARK, "")
    assert not any(header[at : at + 8] in rest for at in range(8, len(header) - 16))


def test_each_line_of_a_pem_key_is_found_alone() -> None:
    lines = PEM.splitlines()
    for line in lines[1:-1]:
        assert redacted(f"key line: {line}.", PEM) == f"key line: {REDACTION_MARK}."
    # The first line is the same in every key.
    assert redacted(lines[0], PEM) == lines[0]


def test_base64_in_lines_is_found() -> None:
    secret = "".join(chr(33 + number % 90) for number in range(200))
    text = b64encode(secret.encode()).decode()
    wrapped = "\n".join(text[at : at + 76] for at in range(0, len(text), 76))
    assert set(redacted(wrapped, secret).split("\n")) == {REDACTION_MARK}


def test_short_secrets_add_no_encoded_forms() -> None:
    # "61" is "a" in hex, and occurs in many texts.
    assert redacted("61 YQ==", "a") == "61 YQ=="


def test_redaction_of_a_long_key_is_fast_enough_for_the_largest_output() -> None:
    started = time.process_time()
    clean = Redactor(frozenset({PEM * 20})).data(b"0123456789abcdef\n" * 60_000)
    assert len(clean) == 1_020_000
    assert time.process_time() - started < 10
