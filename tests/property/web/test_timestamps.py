"""The fast parser of times accepts only forms that the full parser accepts."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.domain import timestamps
from punctual.domain.schedules.timezones import HORIZON
from punctual.domain.utc import EPOCH
from tests.support.examples import examples

FORMS = [
    "2026-12-01T10:00:00Z",
    "2026-12-01T10:00:00.5Z",
    "2026-12-01T10:00:00.123Z",
    "2026-12-01T10:00:00.123456Z",
    "2026-12-01T10:00:00.1234567Z",
    "2026-12-01T10:00:00+01:00",
    "2026-W01-1T10:00:00Z",
    "2026-12-01T101010.5Z",
    "2026-12-01T10:00Z",
    "1969-12-31T23:59:59Z",
    "2200-01-01T00:00:00Z",
    "",
]
CHARACTERS = "0123456789-:.,TWZztx+ ٣"


def parse_fully(text: str) -> datetime | None:
    try:
        at = timestamps._parse_any_form(text)
    except ValueError:
        return None
    return at if EPOCH <= at < HORIZON else None


def parse(text: str) -> datetime | None:
    try:
        return timestamps.parse_time(text)
    except ValueError:
        return None


@pytest.mark.parametrize("form", FORMS)
def test_both_parsers_agree_on_each_form(form: str) -> None:
    assert parse(form) == parse_fully(form)


def test_usual_forms_take_the_fast_parser() -> None:
    assert [timestamps._parse_usual_form(form) is not None for form in FORMS[:6]] == [True] * 4 + [
        False
    ] * 2


@settings(max_examples=examples(2_000), deadline=None)
@given(
    form=st.sampled_from(FORMS[:-1]),
    edits=st.lists(
        st.tuples(
            st.integers(0, 26), st.sampled_from(["put", "drop", "add"]), st.sampled_from(CHARACTERS)
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_both_parsers_agree_on_edited_forms(form: str, edits: list[tuple[int, str, str]]) -> None:
    characters = list(form)
    for index, edit, character in edits:
        at = min(index, len(characters) - 1)
        characters[at : at + (edit != "add")] = [] if edit == "drop" else [character]
    text = "".join(characters)
    parsed = parse(text)
    assert parsed == parse_fully(text)
    assert parsed is None or parsed.tzinfo is UTC
