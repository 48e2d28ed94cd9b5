"""Webhooks: validation, the secret, and delivery of the subscribed outcomes."""

import base64
import json

import pytest

from tests.support.acceptance.contract import NEVER_SOON, Api, Json, eventually, fields_of, unique
from tests.support.acceptance.target import Target
from tests.support.signatures import is_signed

OUTCOMES = ["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "SKIPPED", "MISSED"]
HOOK = "https://hooks.example/a"
GOOD: list[list[Json]] = [
    [],
    [{"on": ["FAILED"], "url": HOOK}],
    [{"on": OUTCOMES, "url": f"{HOOK}?a=b&c={'x' * 1_000}"}],
    [
        {"on": [outcome], "url": f"http://127.0.0.1:{port}/"}
        for port, outcome in enumerate(OUTCOMES[:5], 1)
    ],
]


@pytest.mark.parametrize("notify", GOOD)
def test_webhooks_are_kept_as_sent(api: Api, notify: list[Json]) -> None:
    job = api.create(**NEVER_SOON, notify=notify)
    assert job["notify"] == notify
    assert api.get(f"/jobs/{job['job_id']}")["notify"] == notify
    changed = api("PATCH", f"/jobs/{job['job_id']}", {"notify": GOOD[1]})
    assert (changed.status_code, changed.json()["notify"]) == (200, GOOD[1])
    unset = api("PATCH", f"/jobs/{job['job_id']}", {"notify": None})
    assert (unset.status_code, unset.json()["notify"]) == (200, [])


def test_all_wrong_fields_of_webhooks_are_named(api: Api) -> None:
    notify: Json = [
        {"on": ["FAILED"], "url": "ftp://hooks.example"},
        {"on": ["FAILED", "FAILED"], "url": HOOK},
        {"on": [], "url": HOOK},
        {"on": ["RUNNING"], "url": "https://"},
        {"url": HOOK, "secret": "x"},
    ]
    answer = api("POST", "/jobs", {"name": unique("n"), **NEVER_SOON, "notify": notify})
    assert answer.status_code == 422
    assert fields_of(answer) == {
        "notify.0.url",
        "notify.1.on",
        "notify.2.on",
        "notify.3.on.0",
        "notify.3.url",
        "notify.4.on",
        "notify.4.secret",
    }


@pytest.mark.parametrize(
    "notify", [GOOD[1] * 6, {"on": ["FAILED"], "url": HOOK}, "FAILED", [None], [["FAILED", HOOK]]]
)
def test_invalid_notify_is_refused(api: Api, notify: Json) -> None:
    answer = api("POST", "/jobs", {"name": unique("n"), **NEVER_SOON, "notify": notify})
    assert answer.status_code == 422
    assert {field.partition(".")[0] for field in fields_of(answer)} == {"notify"}


def test_webhook_secret_is_stable_and_takes_no_parameters(api: Api) -> None:
    secret = api.get("/webhook-secret")["secret"]
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    assert api.get("/webhook-secret")["secret"] == secret
    assert api("GET", "/webhook-secret", of="acme").status_code == 422
    assert api("POST", "/webhook-secret", {}).status_code == 405


def test_reading_the_webhook_secret_is_audited(api: Api) -> None:
    before = len(api.get("/audit", action="webhook_secret.read", limit=200)["entries"])
    secret = api.get("/webhook-secret")["secret"]
    entries = api.get("/audit", action="webhook_secret.read", limit=200)["entries"]
    assert len(entries) == min(200, before + 1)
    assert entries[0]["caller"] == api.get("/whoami")["name"]
    assert secret not in str(entries)


def test_webhook_is_called_once_for_a_subscribed_outcome(api: Api, target: Target) -> None:
    if not api.is_local:
        pytest.skip("it cannot call this machine")
    path = f"/200/{unique('hook')}"
    notify: Json = [
        {"on": ["SUCCESS"], "url": target.url(f"{path}/good")},
        {"on": ["CANCELLED", "FAILED"], "url": target.url(f"{path}/bad")},
    ]
    job = api.create(**NEVER_SOON, notify=notify)
    run = api.ended(api.run_now(job["job_id"]))
    (call,) = eventually(lambda: target.of(f"{path}/good"))
    event = json.loads(call.body)
    assert call.method == "POST"
    assert call.headers["content-type"] == "application/json"
    assert (event["type"], event["time"]) == ("Run State Change", run["end_time"])
    assert {name: event["data"][name] for name in ("job_id", "run_id", "to", "count")} == {
        "job_id": job["job_id"],
        "run_id": run["run_id"],
        "to": "SUCCESS",
        "count": 1,
    }
    assert is_signed(api.get("/webhook-secret")["secret"], call.headers, call.body)
    assert target.of(f"{path}/bad") == []
