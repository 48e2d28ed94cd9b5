"""A job request reports all wrong fields, and keeps valid fields as sent."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from punctual.domain.errors import Invalid
from punctual.node.features import NODE_FEATURES
from punctual.web.features import Features
from punctual.web.http.json_body import parse_object
from punctual.web.models.job_rules import new_job

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
ALL_FEATURES = Features(
    frozenset({"event", "http", "lambda", "sqs", "script", "container"}),
    artifacts=True,
    secrets=True,
    node_paths=True,
)
NIGHTLY: dict[str, Any] = {
    "name": "nightly",
    "schedule_type": "CRON",
    "cron_expression": "0 0 * * *",
    "payload": {"a": [1, None, 2.5]},
    "max_retries": 3,
}


def accept(features: Features = NODE_FEATURES, **fields: Any) -> dict[str, Any]:
    return new_job(parse_object(json.dumps(fields).encode()), NOW, features)


def field_errors(features: Features = NODE_FEATURES, **fields: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as raised:
        accept(features, **fields)
    return {error.field: error.message for error in raised.value.errors}


def immediate(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "schedule_type": "IMMEDIATE", **fields}


def cron(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "schedule_type": "CRON", "cron_expression": "0 0 * * *", **fields}


def interval(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "schedule_type": "INTERVAL", "interval_seconds": 60, **fields}


def future(at: str, **fields: Any) -> dict[str, Any]:
    return {"name": "a", "schedule_type": "FUTURE", "schedule_time": at, **fields}


def test_job_of_five_fields_is_accepted_as_sent() -> None:
    assert accept(**NIGHTLY) == NIGHTLY


def test_null_is_the_default_and_is_not_stored() -> None:
    sent = {**NIGHTLY, "payload": None, "retry": None, "interval_seconds": None, "tags": None}
    assert accept(**sent) == {
        number: value for number, value in NIGHTLY.items() if number != "payload"
    }


def test_empty_exclude_is_accepted_for_every_schedule() -> None:
    assert accept(**immediate(exclude=[])) == immediate()


def test_null_in_a_task_or_retry_is_the_default() -> None:
    sent = immediate(task={"type": "event", "detail_type": None}, retry={"jitter": None})
    assert accept(**sent) == immediate(task={"type": "event"}, retry={})


def test_invalid_job_error_names_every_wrong_field() -> None:
    errors = field_errors(
        name="a\n",
        schedule_type="CRON",
        cron_expression="61 * * * *",
        timezone="Mars/Olympus",
        interval_seconds=5,
        max_retries="3",
        max_concurrency=True,
        retry={"multiplier": 0, "times": 1, "jitter": 1},
        tags={"a:b": "x", "team": 3},
        notify=[{"on": ["NOISE"], "url": "https://example.com"}],
        task={"type": "http", "url": 3, "headers": {"a b": "x"}},
        exclude=["2026-12-24", "2026-1-1", 4],
        start_time="2027-01-01T00:00:00Z",
        end_time="2026-12-01T00:00:00Z",
        job_id="x",
        colour="red",
    )
    assert set(errors) == {
        "name",
        "cron_expression",
        "timezone",
        "interval_seconds",
        "max_retries",
        "max_concurrency",
        "retry.multiplier",
        "retry.times",
        "retry.jitter",
        "tags.a:b",
        "tags.team",
        "notify.0.on.0",
        "task.url",
        "task.headers.a b",
        "exclude.1",
        "exclude.2",
        "end_time",
        "job_id",
        "colour",
    }


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("jitter_seconds", 0, 3_600),
        ("misfire_grace_seconds", 0, 86_400),
        ("max_concurrency", 1, 100),
        ("max_waiting", 1, 1_000),
        ("timeout_seconds", 1, 900),
        ("max_retries", 0, 100),
        ("deadline_seconds", 1, 2_592_000),
    ],
)
def test_integer_field_has_its_bounds(field: str, low: int, high: int) -> None:
    for right in (low, high):
        assert accept(**immediate(**{field: right}))[field] == right
    wrong_values: list[Any] = [low - 1, high + 1, 10**30, "5", 5.0, True, [], {}]
    for wrong in wrong_values:
        assert set(field_errors(**immediate(**{field: wrong}))) == {field}


def test_interval_has_its_bounds() -> None:
    for right in (1, 31_622_400):
        assert accept(**interval(interval_seconds=right))["interval_seconds"] == right
    for wrong in (0, 31_622_401, "300", 1.5, True):
        assert set(field_errors(**interval(interval_seconds=wrong))) == {"interval_seconds"}


@pytest.mark.parametrize(
    "field",
    [
        "schedule_type",
        "misfire_policy",
        "priority",
        "overlap_policy",
        "delivery",
        "dst_gap",
        "dst_fold",
        "interval_from",
    ],
)
def test_unknown_value_of_an_enumeration_is_refused(field: str) -> None:
    for wrong in ("LATER", "high", "", 3, ["SKIP"]):
        assert field in field_errors(**{**cron(), field: wrong})


@pytest.mark.parametrize("name", ["", "a" * 257, 5, ["a"], "a\tb", "\x7f", "\x85", "a\0b"])
def test_invalid_name_is_refused(name: Any) -> None:
    assert set(field_errors(**{**immediate(), "name": name})) == {"name"}


@pytest.mark.parametrize("name", ["a", " a ", "ü" * 256, "🎉" * 256, "<b>", "{{payload.a}}"])
def test_valid_name_is_accepted_as_sent(name: str) -> None:
    assert accept(**{**immediate(), "name": name})["name"] == name


def test_empty_job_error_names_the_required_fields() -> None:
    assert field_errors() == {"name": "is required", "schedule_type": "is required"}


@pytest.mark.parametrize(
    ("kind", "required_field"),
    [
        ("FUTURE", "schedule_time"),
        ("CRON", "cron_expression"),
        ("INTERVAL", "interval_seconds"),
    ],
)
def test_schedule_type_requires_its_field(kind: str, required_field: str) -> None:
    errors = field_errors(name="a", schedule_type=kind)
    assert errors == {required_field: f"is required when schedule_type is {kind}"}
    empty: dict[str, Any] = {"name": "a", "schedule_type": kind, required_field: None}
    assert required_field in field_errors(**empty)


@pytest.mark.parametrize(
    ("fields", "foreign_field"),
    [
        (immediate(schedule_time="2026-12-01T10:00:00Z"), "schedule_time"),
        (immediate(timezone="UTC"), "timezone"),
        (immediate(exclude=["2026-12-24"]), "exclude"),
        (immediate(max_runs=3), "max_runs"),
        (future("2026-12-01T10:00:00Z", start_time="2026-12-01T10:00:00Z"), "start_time"),
        (future("2026-12-01T10:00:00Z", cron_expression="0 0 * * *"), "cron_expression"),
        (cron(interval_seconds=5), "interval_seconds"),
        (cron(interval_from="COMPLETED"), "interval_from"),
        (interval(dst_gap="SKIP"), "dst_gap"),
        (interval(dst_fold="BOTH"), "dst_fold"),
        (interval(cron_expression="0 0 * * *"), "cron_expression"),
    ],
)
def test_field_of_another_schedule_type_is_refused(
    fields: dict[str, Any], foreign_field: str
) -> None:
    assert set(field_errors(**fields)) == {foreign_field}
    assert "belongs to schedule_type" in field_errors(**fields)[foreign_field]


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("2026-12-01T10:00:00Z", "2026-12-01T10:00:00.000Z"),
        ("2026-12-01t11:30:00+01:30", "2026-12-01T10:00:00.000Z"),
        ("2026-12-01 10:00:00.25z", "2026-12-01T10:00:00.250Z"),
        ("2026-12-01T10:00:00.000000001Z", "2026-12-01T10:00:00.001Z"),
        ("2026-11-18T11:59:55Z", "2026-11-18T11:59:55.000Z"),
    ],
)
def test_schedule_time_has_any_offset_and_is_up_to_five_seconds_past(
    sent: str, stored: str
) -> None:
    assert accept(**future(sent))["schedule_time"] == stored


@pytest.mark.parametrize(
    "sent",
    [
        "2026-11-18T11:59:54.999Z",
        "2026-12-01T10:00:00",
        "2026-12-01",
        "20261201T100000Z",
        "2026-12-01T24:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-W10-1T00:00:00Z",
        "9999-12-31T23:59:59-10:00",
        "0001-01-01T00:00:00+10:00",
        "2026-12-01T10:00:60Z",
        "٢٠٢٦-12-01T10:00:00Z",
        "tomorrow",
        "",
        1_796_119_200,
        {},
    ],
)
def test_invalid_or_past_schedule_time_is_refused(sent: Any) -> None:
    assert set(field_errors(**future(sent))) == {"schedule_time"}


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        (cron(cron_expression="0 0 30 2 *"), "cron_expression"),
        (cron(cron_expression="@reboot"), "cron_expression"),
        (cron(cron_expression="*/0 * * * *"), "cron_expression"),
        (cron(cron_expression="at(2020-01-01T00:00:00)"), "cron_expression"),
        (cron(cron_expression="cron(0 0 1 1 ? 2020)"), "cron_expression"),
        (cron(end_time="2026-11-18T12:00:01Z"), "end_time"),
        (interval(end_time="2026-11-18T12:00:30Z"), "end_time"),
        (interval(start_time="2027-01-01T00:00:00Z", end_time="2026-12-01T00:00:00Z"), "end_time"),
        (cron(exclude=["2026-99-01"]), "exclude.0"),
        (cron(cron_expression="cron(0 0 24 12 ? 2026)", exclude=["2026-12-24"]), "exclude"),
        (cron(timezone="Europe/Atlantis"), "timezone"),
        (cron(timezone="../../etc/passwd"), "timezone"),
        (cron(exclude=["2026-12-24"] * 367), "exclude"),
    ],
)
def test_schedule_that_never_fires_is_refused(fields: dict[str, Any], wrong: str) -> None:
    assert set(field_errors(**fields)) == {wrong}


def test_schedule_is_checked_also_with_a_field_of_a_wrong_type() -> None:
    errors = field_errors(name=5, schedule_type="NEVER", cron_expression="bad", timezone="Mars")
    assert set(errors) == {"name", "schedule_type", "cron_expression", "timezone"}
    errors = field_errors(**cron(cron_expression=5, timezone="Mars", end_time="never"))
    assert set(errors) == {"cron_expression", "timezone", "end_time"}


def test_conflicting_fields_are_refused() -> None:
    fields = interval(
        interval_from="COMPLETED",
        max_concurrency=2,
        delivery="AT_MOST_ONCE",
        max_retries=1,
        retry={"backoff_seconds": 600},
    )
    assert set(field_errors(**fields)) == {
        "max_concurrency",
        "max_retries",
        "retry.backoff_seconds",
    }
    valid_fields = {**fields, "max_concurrency": 1, "max_retries": 0}
    valid_fields["retry"] = {"backoff_seconds": 600, "max_backoff_seconds": 600.5}
    assert accept(**valid_fields) == valid_fields
    valid_fields["retry"] = {"max_backoff_seconds": 4}
    assert set(field_errors(**valid_fields)) == {"retry.max_backoff_seconds"}


def test_only_scripts_and_containers_have_a_long_timeout() -> None:
    script = {"type": "script", "runtime": "bash", "code": "sleep 9999"}
    assert accept(**immediate(timeout_seconds=86_400, task=script))["timeout_seconds"] == 86_400
    container = {"type": "container", "image": "busybox"}
    assert (
        accept(ALL_FEATURES, **immediate(timeout_seconds=86_400, task=container))["task"]
        == container
    )
    assert set(field_errors(**immediate(timeout_seconds=901))) == {"timeout_seconds"}
    assert set(field_errors(**immediate(timeout_seconds=86_401, task=script))) == {
        "timeout_seconds"
    }


@pytest.mark.parametrize(
    ("tags", "wrong"),
    [
        ({"": "x"}, "tags."),
        ({"a:b": "x"}, "tags.a:b"),
        ({"k" * 129: "x"}, "tags." + "k" * 128),
        ({"team": "x" * 257}, "tags.team"),
        ({"team": None}, "tags.team"),
        ({f"k{number}": "x" for number in range(51)}, "tags"),
        (["team"], "tags"),
        ("team", "tags"),
    ],
)
def test_invalid_tag_is_named(tags: Any, wrong: str) -> None:
    assert set(field_errors(**immediate(tags=tags))) == {wrong}


def test_tags_are_accepted_up_to_their_bounds() -> None:
    tags = {"k" * 128: "v" * 256, "ü": "", **{f"k{number}": "x" for number in range(48)}}
    assert accept(**immediate(tags=tags))["tags"] == tags


def test_payload_has_at_most_64_levels() -> None:
    deepest: Any = []
    for _ in range(63):
        deepest = [deepest]
    assert accept(**immediate(payload=deepest))["payload"] == deepest
    assert set(field_errors(**immediate(payload=[deepest]))) == {"payload"}
    assert set(field_errors(**immediate(payload={"a": deepest}))) == {"payload"}


def test_payload_has_at_most_256_kib() -> None:
    longest = "x" * (256 * 1024 - 2)
    assert accept(**immediate(payload=longest))["payload"] == longest
    assert set(field_errors(**immediate(payload=longest + "x"))) == {"payload"}


def test_null_character_is_refused_by_its_path() -> None:
    errors = field_errors(**immediate(payload={"a": [1, "x\0"], "b\0": 1}, tags={"t": "\0"}))
    assert set(errors) == {"payload.a.1", "payload.b\\u0000", "tags.t"}
    escaped = immediate(payload="\\u0000")
    assert accept(**escaped) == escaped


def test_large_integers_are_accepted_as_sent() -> None:
    sent = immediate(payload=[2**53 + 1, 2**64, -(2**70), 10**300])
    assert accept(**sent) == sent


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"name":"a","schedule_type":"IMMEDIATE","payload":{"x":[1,1e400]}}', "payload.x.1"),
        (b'{"name":"a","schedule_type":"IMMEDIATE","payload":-1e999}', "payload"),
        (b'{"retry":{"multiplier":1e999}}', "retry.multiplier"),
        (b'{"payload":' + b"9" * 5_000 + b"}", "payload"),
        (b'{"max_retries":-' + b"1" * 5_000 + b"}", "max_retries"),
        (b'{"payload":' + b"9" * 5_000 + b', "a": }', "body"),
    ],
)
def test_number_out_of_range_is_refused_by_its_path(body: bytes, field: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse_object(body)
    assert [error.field for error in raised.value.errors] == [field]


def test_last_value_of_a_repeated_field_counts() -> None:
    body = b'{"name":"first","schedule_type":"IMMEDIATE","name":"last"}'
    assert new_job(parse_object(body), NOW, NODE_FEATURES)["name"] == "last"


def test_missing_feature_of_the_installation_is_refused_on_its_field() -> None:
    artifact = {"type": "script", "runtime": "bash", "artifact_id": "0" * 64}
    without = NODE_FEATURES._replace(artifacts=False)
    assert field_errors(without, **immediate(task=artifact)) == {
        "task.artifact_id": "artifacts are not in this installation yet"
    }
    assert accept(ALL_FEATURES, **immediate(task=artifact)) == immediate(task=artifact)


def test_many_wrong_entries_are_refused_as_one_field() -> None:
    script = {"type": "script", "runtime": "bash", "code": "true"}
    assert set(field_errors(**immediate(task={**script, "args": [1] * 2_500}))) == {"task.args"}
    env = {f"V{number}": 1 for number in range(1_000)}
    assert set(field_errors(**immediate(task={**script, "env": env}))) == {"task.env"}
    assert set(field_errors(**immediate(**{f"f{number}": 1 for number in range(1_000)}))) == {
        "body"
    }
    assert set(field_errors(**immediate(tags=env, retry=env))) == {"tags", "retry"}


def test_payload_may_have_many_entries() -> None:
    sent = immediate(payload=[{"a": number} for number in range(5_000)])
    assert accept(**sent) == sent
    body = {"type": "http", "url": "https://example.com", "body": [1] * 5_000}
    assert accept(**immediate(task=body))["task"] == body


def test_error_names_all_wrong_fields_with_a_short_message() -> None:
    with pytest.raises(Invalid) as raised:
        accept(**immediate(**{f"f{number}": 1 for number in range(150)}))
    assert len(raised.value.errors) == 150
    assert raised.value.message.endswith("and 140 more")
