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
from tests.support.builders_jobs import Story, a_change, a_job, after, every
from tests.support.signatures import is_signed

SECRET = b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
BODY = b'{"test": 2432232314}'
AT = datetime(2021, 2, 25, 15, 2, 10, tzinfo=UTC)


def test_a_signature_is_the_one_of_the_conventions_own_example() -> None:
    wanted = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signature(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, BODY) == wanted


def headers(*secrets: bytes) -> dict[str, str]:
    return signed_headers(secrets or (SECRET,), "a-run.0", AT, BODY)


def test_what_is_signed_is_believed_by_who_knows_one_of_the_secrets() -> None:
    other = bytes(32)
    both = headers(SECRET, other)
    now = AT.timestamp() + 299
    for secret in (SECRET, other):
        assert is_signed(format_secret(secret), both, BODY)
        assert verify_webhook(format_secret(secret), both, BODY, now=now) == {"test": 2432232314}
    former = [format_secret(bytes(16)), format_secret(SECRET)]
    spelled = {name.title(): value for name, value in headers().items()}
    assert verify_webhook(former, spelled, BODY.decode(), now=now) == {"test": 2432232314}


@pytest.mark.parametrize(
    ("changed", "body", "seconds", "said"),
    [
        ({}, BODY + b" ", 0, "not signed"),
        ({"webhook-id": "another"}, BODY, 0, "not signed"),
        ({"webhook-timestamp": "1614265331"}, BODY, 0, "not signed"),
        ({"webhook-signature": "v1,AAAA v2,x \u00e9"}, BODY, 0, "not signed"),
        ({"webhook-signature": ""}, BODY, 0, "headers"),
        ({"webhook-timestamp": "-1"}, BODY, 0, "headers"),
        ({"webhook-timestamp": "\u0661"}, BODY, 0, "headers"),
        ({}, BODY, 301, "too old"),
        ({}, BODY, -301, "from the future"),
    ],
)
def test_what_is_not_signed_so_or_not_now_is_not_believed(
    changed: dict[str, str], body: bytes, seconds: float, said: str
) -> None:
    now = AT.timestamp() + seconds
    with pytest.raises(BadWebhook, match=said):
        verify_webhook(format_secret(SECRET), {**headers(), **changed}, body, now=now)


def test_what_is_no_secret_is_told() -> None:
    with pytest.raises(BadWebhook, match="whsec_"):
        verify_webhook("whsec_%%", headers(), BODY, now=AT.timestamp())


def test_by_the_clock_of_who_receives_it_what_was_sent_years_ago_is_too_old() -> None:
    with pytest.raises(BadWebhook, match="too old"):
        verify_webhook(format_secret(SECRET), headers(), BODY)


def test_each_tenant_has_a_secret_and_each_key_gives_others() -> None:
    keys, tenants = (bytes(32), bytes(31) + b"1"), ("acme", "umbrella", "acme ")
    found = {tenant_secret(key, tenant) for key in keys for tenant in tenants}
    assert len(found) == 6
    assert {len(secret) for secret in found} == {32}


def test_keys_are_kept_the_newest_first_and_two_at_most() -> None:
    one, two, three = (bytes([n]) * 32 for n in (1, 2, 3))
    assert rotate_keys(rotate_keys(rotate_keys((), one), two), three) == (three, two)
    assert parse_keys(format_keys((three, two)) + "\n") == (three, two)
    assert parse_keys(b64encode(b"short").decode()) == ()
    assert parse_keys(format_keys((one,)) + " unset") == ()


def test_the_next_try_is_later_each_time_up_to_half_an_hour_and_there_is_an_end() -> None:
    delays = [webhook_retry_delay("a-run.0", tries) for tries in range(1, MAX_WEBHOOK_ATTEMPTS)]
    whole = [timedelta(seconds=10 * 2**n) for n in range(8)] + [timedelta(minutes=30)] * 11
    for delay, most in zip(delays, whole, strict=True):
        assert delay is not None
        assert most * 0.8 <= delay <= most
    assert webhook_retry_delay("a-run.0", MAX_WEBHOOK_ATTEMPTS) is None
    assert webhook_retry_delay("a-run.0", 50) is None
    assert webhook_retry_delay("a-run.0", 1) != webhook_retry_delay("a-run.1", 1)


def test_the_head_tells_every_outcome_apart() -> None:
    outcomes = list(ENDED_RUN_STATUSES)
    kept = notify_letters([[one] for one in outcomes])
    assert [entries_to_notify(kept, one) for one in outcomes] == [[place] for place in range(6)]
    assert entries_to_notify(notify_letters([outcomes, ["FAILED"]]), RunStatus.FAILED) == [0, 1]
    assert entries_to_notify(kept, RunStatus.RUNNING) == []
    assert entries_to_notify("", RunStatus.FAILED) == []
    assert set(get_args(Outcomes)) == {one.value for one in ENDED_RUN_STATUSES}


def told_by(story: Story) -> Story:
    """Return a job with two entries: all failures, and runs that did not start."""
    change = msgspec.structs.replace(a_change(story.head), notify="FT KM")
    story.do(change)
    return story


def test_a_change_says_at_once_who_is_told_of_runs_that_exist_too() -> None:
    story = Story(a_job(every(60), max_retries=0)).fires(60)
    run = story.claim()
    assert "notify" not in msgspec.json.encode(story.head).decode()
    before = told_by(story).head
    (notice,) = derive_notifications(story.fail(run), before)
    assert (notice.run_id, notice.entry, notice.status) == (run.run_id, 0, RunStatus.FAILED)
    assert (notice.previous_status, notice.version) == ("RUNNING", story.head.version)
    assert notice.id == f"{run.run_id}.0"
    story.change()  # an update without webhooks
    assert list(derive_notifications(story.do_look(recorded=False), before)) == []


def test_of_a_run_that_is_tried_again_or_succeeds_nobody_is_told() -> None:
    story = told_by(Story(a_job(every(60), max_retries=1)))
    story.fires(60)
    before = story.head
    assert list(derive_notifications(story.fail(story.claim()), before)) == []
    story.wait(30).look()
    assert list(derive_notifications(story.finish(story.claim()), before)) == []


def test_what_did_not_run_is_told_as_one_with_its_number() -> None:
    story = told_by(Story(a_job(every(60), misfire=MisfirePolicy.SKIP)))
    before = story.head
    (notice,) = derive_notifications(story.at(3_601).look(), before)
    assert (notice.entry, notice.status, notice.occurrences) == (1, RunStatus.MISSED, 59)
    assert (notice.id, notice.previous_status) == (f"{notice.run_id}.1.59", "")


def test_a_webhook_says_what_the_bus_says_and_nothing_that_is_secret() -> None:
    run = a_run(
        status=RunStatus.FAILED, ended_at=NOON, token=3, executor_id="e1", nonce="n", inline_output="out"
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
    later = webhook_attempt(
        notice, "https://a.example", notification_json(notice, run), [SECRET], after(60)
    )
    assert later.task["body"] == attempt.task["body"]
    assert later.task["headers"] != attempt.task["headers"]


def test_an_answer_of_another_kind_is_tried_again_and_a_refusal_is_not() -> None:
    notice = Notification("acme", "job", "run", 0, RunStatus.FAILED, 1, 7, "RUNNING")
    assert delivery_result(Outcome("SUCCESS"), notice, 1).delivered
    assert (
        delivery_result(Outcome.failed("The server answered 500"), notice, 1).retry_after
        is not None
    )
    assert (
        delivery_result(Outcome.timed_out(timedelta(seconds=10)), notice, 1).retry_after is not None
    )
    given_up = delivery_result(
        Outcome.failed("The server answered 410", retryable=False), notice, 1
    )
    assert (given_up.delivered, given_up.retry_after) == (False, None)
    assert given_up.error == "The server answered 410"
    assert delivery_result(Outcome.failed("no"), notice, MAX_WEBHOOK_ATTEMPTS).retry_after is None
