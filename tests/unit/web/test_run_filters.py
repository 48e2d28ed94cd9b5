"""The filters of lists of runs, from the parameters of a call."""

from datetime import timedelta
from urllib.parse import urlencode

import pytest

from punctual.domain.errors import Invalid
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.web.http.query import Query
from punctual.web.http.run_filters import REPEATED_RUN_FILTERS, RUN_FILTERS, read_run_filters

MS = timedelta(milliseconds=1)


def read(*pairs: tuple[str, str]) -> RunFilters:
    query = Query(urlencode(pairs), RUN_FILTERS, REPEATED_RUN_FILTERS)
    filters = read_run_filters(query)
    query.finish()
    return filters


def errors_of(*pairs: tuple[str, str]) -> dict[str, str]:
    with pytest.raises(Invalid) as raised:
        read(*pairs)
    return {error.field: error.message for error in raised.value.errors}


def test_call_without_filters_passes_all_runs() -> None:
    assert read() == RunFilters()


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("1000..", 1_000, None), ("..500", None, 500), ("0..0", 0, 0), ("100..2500", 100, 2_500)],
)
def test_duration_is_a_range_with_an_open_side(text: str, low: int | None, high: int) -> None:
    filters = read(("duration_ms", text))
    assert filters.min_duration == (None if low is None else low * MS)
    assert filters.max_duration == (None if high is None else high * MS)


@pytest.mark.parametrize(
    "text",
    ["", "..", "1000", "5..1", "-1..", "1.5..", "1...2", "1..2..3", "٣..", "1..\n", "9" * 13],
)
def test_duration_in_another_form_is_an_error(text: str) -> None:
    assert set(errors_of(("duration_ms", text))) == {"duration_ms"}


def test_reasons_and_tags_may_repeat() -> None:
    filters = read(("reason", "LOST"), ("reason", "POISON"), ("tag", "a:b:c"), ("tag", "d:"))
    assert filters.reasons == {"LOST", "POISON"}
    assert filters.tags == (("a", "b:c"), ("d", ""))
    assert read(("job_name", "night ly")).job_name == "night ly"


def test_wrong_filters_are_named() -> None:
    errors = errors_of(
        *(("reason", "NONE"), ("tag", "a"), ("job_name", "x" * 513), ("job_names", "x")),
        *(("duration_ms", "x"), ("by", "made")),
    )
    assert set(errors) == {"reason", "tag", "job_name", "job_names", "duration_ms", "by"}
    assert errors["duration_ms"] == "must be a range of milliseconds: 1000.., ..500 or 100..500"
    assert set(errors_of(("job_name", ""))) == {"job_name"}
