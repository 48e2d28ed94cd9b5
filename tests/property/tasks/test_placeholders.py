import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from punctual.tasks.contract import Attempt
from punctual.tasks.placeholders import expand
from punctual.tasks.redaction import REDACTION_MARK, Redactor

texts = st.text(st.characters(codec="utf-8"), max_size=20)
tricky = st.lists(
    st.sampled_from(["{{", "}}", "{", "}", "payload.v", "secret:s", "run_id", " ", "ü"]) | texts,
    max_size=6,
).map("".join)
letters = st.text("ab[]", min_size=1, max_size=5)


def expand_task(task: dict[str, Any], payload: Any, secret: str = "") -> Attempt:
    attempt = Attempt(
        tenant="local",
        job_id="job",
        run_id="run",
        name="name",
        attempt_number=1,
        scheduled_at=datetime(2026, 1, 1, tzinfo=UTC),
        task=task,
        payload=payload,
        timeout=timedelta(seconds=1),
        token=1,
    )
    return expand(attempt, lambda *_: secret)


@given(tricky, tricky)
def test_expanded_value_is_never_read_as_a_placeholder(value: str, secret: str) -> None:
    task = {"type": "http", "body": ["{{payload.v}}", "<{{payload.v}}|{{secret:s}}>"]}
    body = expand_task(task, {"v": value}, secret).task["body"]
    assert body == [value, f"<{value}|{secret}>"]


@given(texts.filter(lambda text: text not in ("", ".", "..")))
def test_value_in_a_url_stays_within_its_segment(value: str) -> None:
    url = expand_task({"type": "http", "url": "https://h/{{payload}}?q=1"}, value).task["url"]
    part = url.removeprefix("https://h/").removesuffix("?q=1")
    assert unquote(part) == value
    assert not set(part) & set("/?#@:\\\r\n ")


@given(st.sets(letters, min_size=1, max_size=4), st.lists(st.text("abc[]", max_size=6), max_size=8))
def test_redaction_of_pieces_equals_redaction_of_the_whole(
    secrets: set[str], pieces: list[str]
) -> None:
    redactor = Redactor(frozenset(secrets))
    stream = redactor.stream()
    output = [stream.feed(piece.encode()) for piece in pieces]

    assert b"".join([*output, stream.flush()]) == redactor.data("".join(pieces).encode())


@given(st.sets(st.text("abc", min_size=1, max_size=5), min_size=1), st.text("abcd", max_size=30))
def test_redaction_leaves_no_secret_and_is_idempotent(secrets: set[str], text: str) -> None:
    redactor = Redactor(frozenset(secrets))
    clean = redactor.text(text)

    remains = clean.split(REDACTION_MARK)
    assert not [secret for secret, rest in itertools.product(secrets, remains) if secret in rest]
    assert redactor.text(clean) == clean


@given(st.text("ab", min_size=2, max_size=6), st.text("abc", max_size=20), st.integers(0, 25))
def test_redacted_truncated_data_is_a_prefix_of_the_redacted_whole(
    secret: str, text: str, length: int
) -> None:
    redactor = Redactor(frozenset({secret}))
    whole = (text + secret + text).encode()

    assert redactor.data(whole).startswith(redactor.data(whole[:length], drop_partial=True))
