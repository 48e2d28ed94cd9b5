"""The fast parser of times accepts only forms that the full parser accepts."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual.domain.schedules.timezones import HORIZON
from punctual.domain.utc import EPOCH
from punctual.web.http import timestamps
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
SIGNS = "0123456789-:.,TWZztx+ ٣"


def long_way(text: str) -> datetime | None:
    try:
        at = timestamps._parse_any_form(text)
    except ValueError:
        return None
    return at if EPOCH <= at < HORIZON else None


def read(text: str) -> datetime | None:
    try:
        return timestamps.parse_time(text)
    except ValueError:
        return None


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_read_alike(form: str) -> None:
    assert read(form) == long_way(form)


def test_the_usual_forms_take_the_short_way() -> None:
    assert [timestamps._parse_usual_form(form) is not None for form in FORMS[:6]] == [True] * 4 + [
        False
    ] * 2


@settings(max_examples=examples(2_000), deadline=None)
@given(
    form=st.sampled_from(FORMS[:-1]),
    edits=st.lists(
        st.tuples(
            st.integers(0, 26), st.sampled_from(["put", "drop", "add"]), st.sampled_from(SIGNS)
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_a_form_that_is_a_little_wrong_is_read_alike(
    form: str, edits: list[tuple[int, str, str]]
) -> None:
    signs = list(form)
    for place, what, sign in edits:
        at = min(place, len(signs) - 1)
        signs[at : at + (what != "add")] = [] if what == "drop" else [sign]
    text = "".join(signs)
    found = read(text)
    assert found == long_way(text)
    assert found is None or found.tzinfo is UTC
