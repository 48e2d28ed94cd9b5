"""Webhooks: recipients, signatures and retries."""

from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from typing import get_args

import msgspec
import pytest

from punctual.client import BadWebhook, verify_webhook
from punctual.domain.job_state import MisfirePolicy
from punctual.domain.run import ENDED_RUN_STATUSES, RunStatus
from punctual.domain.tenants.notify import entries_to_notify, notify_letters
from punctual.domain.tenants.webhooks import (
    MAX_WEBHOOK_ATTEMPTS,
    format_keys,
    format_secret,
    parse_keys,
    rotate_keys,
    signature,
    signed_headers,
    tenant_secret,
    webhook_retry_delay,
)
from punctual.engine.execution.notifications import derive_notifications
from punctual.engine.ports.notifications import Notification
from punctual.tasks.contract import Outcome
from punctual.tasks.limits import RESERVED_DETAIL_TYPES
from punctual.tasks.webhook import delivery_result, webhook_attempt
from punctual.web.models.notify import Outcome as Outcomes
from punctual.web.views.event import notification_json
from tests.support.builders import NOON, a_run
from tests.support.builders_jobs import Story, a_job, after, an_update, every
from tests.support.signatures import is_signed

SECRET = b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
BODY = b'{"test": 2432232314}'
AT = datetime(2021, 2, 25, 15, 2, 10, tzinfo=UTC)


def test_signature_equals_the_example_of_the_convention() -> None:
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signature(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, BODY) == expected


def headers(*secrets: bytes) -> dict[str, str]:
    return signed_headers(secrets or (SECRET,), "a-run.0", AT, BODY)


def test_signed_webhook_is_verified_with_any_of_its_secrets() -> None:
    other = bytes(32)
    signed_by_both = headers(SECRET, other)
    now = AT.timestamp() + 299
    for secret in (SECRET, other):
        assert is_signed(format_secret(secret), signed_by_both, BODY)
        assert verify_webhook(format_secret(secret), signed_by_both, BODY, now=now) == {
            "test": 2432232314
        }
    known_secrets = [format_secret(bytes(16)), format_secret(SECRET)]
    title_case_headers = {name.title(): value for name, value in headers().items()}
    assert verify_webhook(known_secrets, title_case_headers, BODY.decode(), now=now) == {
        "test": 2432232314
    }


@pytest.mark.parametrize(
    ("changed", "body", "seconds", "message"),
    [
        ({}, BODY + b" ", 0, "not signed"),
        ({"webhook-id": "another"}, BODY, 0, "not signed"),
        ({"webhook-timestamp": "1614265331"}, BODY, 0, "not signed"),
        ({"webhook-signature": "v1,AAAA v2,x \u00e9"}, BODY, 0, "not signed"),
        ({"webhook-signature": ""}, BODY, 0, "A header is missing"),
        ({"webhook-timestamp": "-1"}, BODY, 0, "A header is missing"),
        ({"webhook-timestamp": "\u0661"}, BODY, 0, "A header is missing"),
        ({}, BODY, 301, "too old"),
        ({}, BODY, -301, "in the future"),
    ],
)
def test_webhook_with_a_wrong_signature_or_time_is_refused(
    changed: dict[str, str], body: bytes, seconds: float, message: str
) -> None:
    now = AT.timestamp() + seconds
    with pytest.raises(BadWebhook, match=message):
        verify_webhook(format_secret(SECRET), {**headers(), **changed}, body, now=now)


def test_malformed_secret_is_refused() -> None:
    with pytest.raises(BadWebhook, match="whsec_"):
        verify_webhook("whsec_%%", headers(), BODY, now=AT.timestamp())


def test_webhook_of_years_ago_is_too_old_by_the_real_clock() -> None:
    with pytest.raises(BadWebhook, match="too old"):
        verify_webhook(format_secret(SECRET), headers(), BODY)


def test_secret_differs_by_tenant_and_by_key() -> None:
    keys, tenants = (bytes(32), bytes(31) + b"1"), ("acme", "umbrella", "acme ")
    secrets = {tenant_secret(key, tenant) for key in keys for tenant in tenants}
    assert len(secrets) == 6
    assert {len(secret) for secret in secrets} == {32}


def test_webhook_keys_are_at_most_two_with_the_newest_first() -> None:
    first, second, third = (bytes([number]) * 32 for number in (1, 2, 3))
    assert rotate_keys(rotate_keys(rotate_keys((), first), second), third) == (third, second)
    assert parse_keys(format_keys((third, second)) + "\n") == (third, second)
    assert parse_keys(b64encode(b"short").decode()) == ()
    assert parse_keys(format_keys((first,)) + " unset") == ()


def test_webhook_retry_delay_doubles_up_to_30_minutes_and_ends() -> None:
    delays = [webhook_retry_delay("a-run.0", tries) for tries in range(1, MAX_WEBHOOK_ATTEMPTS)]
    full_delays = [timedelta(seconds=10 * 2**number) for number in range(8)] + [
        timedelta(minutes=30)
    ] * 11
    for delay, full_delay in zip(delays, full_delays, strict=True):
        assert delay is not None
        assert full_delay * 0.8 <= delay <= full_delay
    assert webhook_retry_delay("a-run.0", MAX_WEBHOOK_ATTEMPTS) is None
    assert webhook_retry_delay("a-run.0", 50) is None
    assert webhook_retry_delay("a-run.0", 1) != webhook_retry_delay("a-run.1", 1)


def test_notify_letters_distinguish_every_outcome() -> None:
    outcomes = list(ENDED_RUN_STATUSES)
    letters = notify_letters([[status] for status in outcomes])
    assert [entries_to_notify(letters, status) for status in outcomes] == [
        [index] for index in range(6)
    ]
    assert entries_to_notify(notify_letters([outcomes, ["FAILED"]]), RunStatus.FAILED) == [0, 1]
    assert entries_to_notify(letters, RunStatus.RUNNING) == []
    assert entries_to_notify("", RunStatus.FAILED) == []
    assert set(get_args(Outcomes)) == {status.value for status in ENDED_RUN_STATUSES}


def with_recipients(story: Story) -> Story:
    """Return a job with two entries: all failures, and runs that did not start."""
    change = msgspec.structs.replace(an_update(story.state), notify="FT KM")
    story.do(change)
    return story


def test_changed_recipients_apply_to_existing_runs_at_once() -> None:
    story = Story(a_job(every(60), max_retries=0)).evaluate_at(60)
    run = story.claim()
    assert "notify" not in msgspec.json.encode(story.state).decode()
    before = with_recipients(story).state
    (notice,) = derive_notifications(story.fail(run), before)
    assert (notice.run_id, notice.entry, notice.status) == (run.run_id, 0, RunStatus.FAILED)
    assert (notice.previous_status, notice.version) == ("RUNNING", story.state.version)
    assert notice.id == f"{run.run_id}.0"
    story.change()  # an update without webhooks
    assert list(derive_notifications(story.evaluate_recorded(recorded=False), before)) == []


def test_retried_or_successful_run_sends_no_notification() -> None:
    story = with_recipients(Story(a_job(every(60), max_retries=1)))
    story.evaluate_at(60)
    before = story.state
    assert list(derive_notifications(story.fail(story.claim()), before)) == []
    story.wait(30).evaluate()
    assert list(derive_notifications(story.finish(story.claim()), before)) == []


def test_missed_occurrences_send_one_notification_with_their_count() -> None:
    story = with_recipients(Story(a_job(every(60), misfire=MisfirePolicy.SKIP)))
    before = story.state
    (notice,) = derive_notifications(story.at(3_601).evaluate(), before)
    assert (notice.entry, notice.status, notice.occurrences) == (1, RunStatus.MISSED, 59)
    assert (notice.id, notice.previous_status) == (f"{notice.run_id}.1.59", "")


def test_webhook_body_equals_the_event_and_has_no_secret() -> None:
    run = a_run(
        status=RunStatus.FAILED,
        ended_at=NOON,
        token=3,
        executor_id="e1",
        nonce="n",
        inline_output="out",
    )
    notice = Notification("acme", "job", run.run_id, 0, RunStatus.FAILED, 1, 7, "RUNNING")
    attempt = webhook_attempt(
        notice, "https://a.example", notification_json(notice, run), [SECRET], NOON
    )
    sent = msgspec.json.decode(attempt.task["body"])
    assert set(sent) == {"type", "time", "data"}
    assert (sent["type"], sent["data"]["id"]) == (RESERVED_DETAIL_TYPES[1], f"{run.run_id}.7")
    assert attempt.task["headers"]["Content-Type"] == "application/json"
    assert len(attempt.task["body"]) < 1_024
    assert "out" not in sent["data"].values()
    next_attempt = webhook_attempt(
        notice, "https://a.example", notification_json(notice, run), [SECRET], after(60)
    )
    assert next_attempt.task["body"] == attempt.task["body"]
    assert next_attempt.task["headers"] != attempt.task["headers"]


def test_failed_delivery_is_retried_and_a_refused_one_is_not() -> None:
    notice = Notification("acme", "job", "run", 0, RunStatus.FAILED, 1, 7, "RUNNING")
    assert delivery_result(Outcome("SUCCESS"), notice, 1).delivered
    assert (
        delivery_result(Outcome.failed("The server answered 500"), notice, 1).retry_after
        is not None
    )
    assert (
        delivery_result(Outcome.timed_out(timedelta(seconds=10)), notice, 1).retry_after is not None
    )
    abandoned = delivery_result(
        Outcome.failed("The server answered 410", retryable=False), notice, 1
    )
    assert (abandoned.delivered, abandoned.retry_after) == (False, None)
    assert abandoned.error == "The server answered 410"
    assert delivery_result(Outcome.failed("no"), notice, MAX_WEBHOOK_ATTEMPTS).retry_after is None
