"""Checks of the webhooks of a job."""

from typing import Any

import pytest

from tests.unit.web.test_job import accept, field_errors, immediate


def webhook(*on: str, url: str = "https://example.com/hook") -> dict[str, Any]:
    return {"on": list(on), "url": url}


def test_webhooks_are_accepted_as_sent() -> None:
    sent = immediate(notify=[webhook("FAILED", "TIMED_OUT"), webhook("SUCCESS"), webhook("MISSED")])
    assert accept(**sent) == sent
    assert accept(**immediate(notify=[])) == immediate(notify=[])
    assert accept(**immediate(notify=None)) == immediate()


def test_invalid_webhooks_error_names_every_wrong_field() -> None:
    assert field_errors(
        **immediate(
            notify=[
                webhook("FAILED", url="ftp://example.com"),
                webhook("FAILED", "SUCCESS", "FAILED"),
                webhook(),
                {"url": "https://example.com"},
                {**webhook("RUNNING", url="https://me:pw@example.com"), "secret": "x"},
            ]
        )
    ) == {
        "notify.0.url": "The URL does not begin with http:// or https://",
        "notify.1.on": "must not name a status twice",
        "notify.2.on": "must have at least 1 entries",
        "notify.3.on": "is required",
        "notify.4.on.0": "must be one of SUCCESS, FAILED, TIMED_OUT, CANCELLED, SKIPPED, MISSED",
        "notify.4.url": "The URL holds a user name; put credentials into a header",
        "notify.4.secret": "is not a field of this call",
    }


def test_job_has_at_most_five_webhooks() -> None:
    assert accept(**immediate(notify=[webhook("FAILED")] * 5))
    assert field_errors(**immediate(notify=[webhook("FAILED")] * 6)) == {
        "notify": "must have at most 5 entries"
    }


@pytest.mark.parametrize("wrong", [3, "https://example.com", {"on": ["FAILED"]}, [None], [[]]])
def test_malformed_webhooks_are_refused_on_their_field(wrong: Any) -> None:
    assert all(field.startswith("notify") for field in field_errors(**immediate(notify=wrong)))


def test_webhook_url_with_a_placeholder_is_refused() -> None:
    errors = field_errors(
        **immediate(notify=[webhook("FAILED", url="https://example.com/{{run_id}}")])
    )
    assert set(errors) == {"notify.0.url"}
