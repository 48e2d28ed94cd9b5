"""A job request reports all wrong fields, and keeps valid fields as sent."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from punctual.domain.errors import Invalid
from punctual.node.features import NODE_FEATURES
from punctual.web.features import Features
from punctual.web.http.json_body import parse_object
from punctual.web.models.job_rules import changed_job, new_job

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
ALL = Features(
    frozenset({"event", "http", "lambda", "sqs", "script", "container"}),
    artifacts=True,
    secrets=True,
)
WHOLE: dict[str, Any] = {
    "name": "nightly",
    "schedule_type": "CRON",
    "cron_expression": "0 0 * * *",
    "payload": {"a": [1, None, 2.5]},
    "max_retries": 3,
}


def accepted(features: Features = NODE_FEATURES, **fields: Any) -> dict[str, Any]:
    return new_job(parse_object(json.dumps(fields).encode()), NOW, features)


def refused(features: Features = NODE_FEATURES, **fields: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        accepted(features, **fields)
    return {error.field: error.message for error in caught.value.errors}


def immediate(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "schedule_type": "IMMEDIATE", **fields}


def cron(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "schedule_type": "CRON", "cron_expression": "0 0 * * *", **fields}


def interval(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "schedule_type": "INTERVAL", "interval_seconds": 60, **fields}


def future(at: str, **fields: Any) -> dict[str, Any]:
    return {"name": "a", "schedule_type": "FUTURE", "schedule_time": at, **fields}


def test_five_fields_are_a_whole_job_and_are_kept_as_sent() -> None:
    assert accepted(**WHOLE) == WHOLE


def test_null_is_the_default_and_is_not_kept() -> None:
    sent = {**WHOLE, "payload": None, "retry": None, "interval_seconds": None, "tags": None}
    assert accepted(**sent) == {n: v for n, v in WHOLE.items() if n != "payload"}


def test_an_empty_exclude_says_nothing_whatever_the_schedule() -> None:
    assert accepted(**immediate(exclude=[])) == immediate()


def test_nulls_inside_a_task_and_a_retry_are_defaults_too() -> None:
    sent = immediate(task={"type": "event", "detail_type": None}, retry={"jitter": None})
    assert accepted(**sent) == immediate(task={"type": "event"}, retry={})


def test_every_wrong_field_is_named_at_once_as_it_was_written() -> None:
    found = refused(
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
    assert set(found) == {
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
def test_a_figure_has_its_bounds_and_is_an_integer(field: str, low: int, high: int) -> None:
    for right in (low, high):
        assert accepted(**immediate(**{field: right}))[field] == right
    wrongs: list[Any] = [low - 1, high + 1, 10**30, "5", 5.0, True, [], {}]
    for wrong in wrongs:
        assert set(refused(**immediate(**{field: wrong}))) == {field}


def test_an_interval_has_its_bounds() -> None:
    for right in (1, 31_622_400):
        assert accepted(**interval(interval_seconds=right))["interval_seconds"] == right
    for wrong in (0, 31_622_401, "300", 1.5, True):
        assert set(refused(**interval(interval_seconds=wrong))) == {"interval_seconds"}


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
def test_a_word_that_is_none_of_the_contract_is_refused(field: str) -> None:
    for wrong in ("LATER", "high", "", 3, ["SKIP"]):
        assert field in refused(**{**cron(), field: wrong})


@pytest.mark.parametrize("name", ["", "a" * 257, 5, ["a"], "a\tb", "\x7f", "\x85", "a\0b"])
def test_a_name_that_cannot_be_is_refused(name: Any) -> None:
    assert set(refused(**{**immediate(), "name": name})) == {"name"}


@pytest.mark.parametrize("name", ["a", " a ", "ü" * 256, "🎉" * 256, "<b>", "{{payload.a}}"])
def test_a_name_is_otherwise_kept_as_sent(name: str) -> None:
    assert accepted(**{**immediate(), "name": name})["name"] == name


def test_without_anything_the_required_fields_are_named() -> None:
    assert refused() == {"name": "is required", "schedule_type": "is required"}


@pytest.mark.parametrize(
    ("kind", "needed"),
    [
        ("FUTURE", "schedule_time"),
        ("CRON", "cron_expression"),
        ("INTERVAL", "interval_seconds"),
    ],
)
def test_a_schedule_needs_its_field(kind: str, needed: str) -> None:
    found = refused(name="a", schedule_type=kind)
    assert found == {needed: f"is required when schedule_type is {kind}"}
    empty: dict[str, Any] = {"name": "a", "schedule_type": kind, needed: None}
    assert needed in refused(**empty)


@pytest.mark.parametrize(
    ("fields", "foreign"),
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
def test_a_field_of_another_schedule_is_refused_by_name(
    fields: dict[str, Any], foreign: str
) -> None:
    assert set(refused(**fields)) == {foreign}
    assert "belongs to schedule_type" in refused(**fields)[foreign]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("2026-12-01T10:00:00Z", "2026-12-01T10:00:00.000Z"),
        ("2026-12-01t11:30:00+01:30", "2026-12-01T10:00:00.000Z"),
        ("2026-12-01 10:00:00.25z", "2026-12-01T10:00:00.250Z"),
        ("2026-12-01T10:00:00.000000001Z", "2026-12-01T10:00:00.001Z"),
        ("2026-11-18T11:59:55Z", "2026-11-18T11:59:55.000Z"),
    ],
)
def test_a_time_may_have_any_offset_and_up_to_five_seconds_past(sent: str, kept: str) -> None:
    assert accepted(**future(sent))["schedule_time"] == kept


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
def test_a_time_that_is_none_or_is_over_is_refused(sent: Any) -> None:
    assert set(refused(**future(sent))) == {"schedule_time"}


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
def test_what_can_never_fire_or_means_nothing_is_refused(
    fields: dict[str, Any], wrong: str
) -> None:
    assert set(refused(**fields)) == {wrong}


def test_the_meaning_of_a_schedule_is_checked_beside_a_wrong_type() -> None:
    found = refused(name=5, schedule_type="NEVER", cron_expression="bad", timezone="Mars")
    assert set(found) == {"name", "schedule_type", "cron_expression", "timezone"}
    found = refused(**cron(cron_expression=5, timezone="Mars", end_time="never"))
    assert set(found) == {"cron_expression", "timezone", "end_time"}


def test_fields_that_do_not_go_together_are_named() -> None:
    together = interval(
        interval_from="COMPLETED",
        max_concurrency=2,
        delivery="AT_MOST_ONCE",
        max_retries=1,
        retry={"backoff_seconds": 600},
    )
    assert set(refused(**together)) == {
        "max_concurrency",
        "max_retries",
        "retry.backoff_seconds",
    }
    apart = {**together, "max_concurrency": 1, "max_retries": 0}
    apart["retry"] = {"backoff_seconds": 600, "max_backoff_seconds": 600.5}
    assert accepted(**apart) == apart
    apart["retry"] = {"max_backoff_seconds": 4}
    assert set(refused(**apart)) == {"retry.max_backoff_seconds"}


def test_only_scripts_and_containers_may_take_long() -> None:
    script = {"type": "script", "runtime": "bash", "code": "sleep 9999"}
    assert accepted(**immediate(timeout_seconds=86_400, task=script))["timeout_seconds"] == 86_400
    container = {"type": "container", "image": "busybox"}
    assert accepted(ALL, **immediate(timeout_seconds=86_400, task=container))["task"] == container
    assert set(refused(**immediate(timeout_seconds=901))) == {"timeout_seconds"}
    assert set(refused(**immediate(timeout_seconds=86_401, task=script))) == {"timeout_seconds"}


@pytest.mark.parametrize(
    ("tags", "wrong"),
    [
        ({"": "x"}, "tags."),
        ({"a:b": "x"}, "tags.a:b"),
        ({"k" * 129: "x"}, "tags." + "k" * 128),
        ({"team": "x" * 257}, "tags.team"),
        ({"team": None}, "tags.team"),
        ({f"k{n}": "x" for n in range(51)}, "tags"),
        (["team"], "tags"),
        ("team", "tags"),
    ],
)
def test_a_tag_that_cannot_be_is_named(tags: Any, wrong: str) -> None:
    assert set(refused(**immediate(tags=tags))) == {wrong}


def test_tags_go_to_their_bounds() -> None:
    tags = {"k" * 128: "v" * 256, "ü": "", **{f"k{n}": "x" for n in range(48)}}
    assert accepted(**immediate(tags=tags))["tags"] == tags


def test_a_payload_has_64_levels_and_no_more() -> None:
    deepest: Any = []
    for _ in range(63):
        deepest = [deepest]
    assert accepted(**immediate(payload=deepest))["payload"] == deepest
    assert set(refused(**immediate(payload=[deepest]))) == {"payload"}
    assert set(refused(**immediate(payload={"a": deepest}))) == {"payload"}


def test_a_payload_has_256_kib_and_no_more() -> None:
    longest = "x" * (256 * 1024 - 2)
    assert accepted(**immediate(payload=longest))["payload"] == longest
    assert set(refused(**immediate(payload=longest + "x"))) == {"payload"}


def test_u0000_is_refused_by_its_path_wherever_it_stands() -> None:
    found = refused(**immediate(payload={"a": [1, "x\0"], "b\0": 1}, tags={"t": "\0"}))
    assert set(found) == {"payload.a.1", "payload.b\\u0000", "tags.t"}
    harmless = immediate(payload="\\u0000")
    assert accepted(**harmless) == harmless


def test_large_integers_are_kept_as_sent() -> None:
    sent = immediate(payload=[2**53 + 1, 2**64, -(2**70), 10**300])
    assert accepted(**sent) == sent


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
def test_a_number_that_is_out_of_range_is_named(body: bytes, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_object(body)
    assert [error.field for error in caught.value.errors] == [field]


def test_of_a_name_that_comes_twice_the_last_counts() -> None:
    body = b'{"name":"first","schedule_type":"IMMEDIATE","name":"last"}'
    assert new_job(parse_object(body), NOW, NODE_FEATURES)["name"] == "last"


def test_what_an_installation_has_not_is_refused_on_its_field() -> None:
    artifact = {"type": "script", "runtime": "bash", "artifact_id": "0" * 64}
    assert refused(**immediate(task=artifact)) == {
        "task.artifact_id": "artifacts are not in this installation yet"
    }
    assert accepted(ALL, **immediate(task=artifact)) == immediate(task=artifact)


def hook(*on: str, url: str = "https://example.com/hook") -> dict[str, Any]:
    return {"on": list(on), "url": url}


def test_webhooks_are_kept_as_sent() -> None:
    wanted = immediate(notify=[hook("FAILED", "TIMED_OUT"), hook("SUCCESS"), hook("MISSED")])
    assert accepted(**wanted) == wanted
    assert accepted(**immediate(notify=[])) == immediate(notify=[])
    assert accepted(**immediate(notify=None)) == immediate()


def test_every_wrong_field_of_webhooks_is_named_at_once() -> None:
    assert refused(
        **immediate(
            notify=[
                hook("FAILED", url="ftp://example.com"),
                hook("FAILED", "SUCCESS", "FAILED"),
                hook(),
                {"url": "https://example.com"},
                {**hook("RUNNING", url="https://me:pw@example.com"), "secret": "x"},
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


def test_a_job_has_five_webhooks_at_the_most() -> None:
    assert accepted(**immediate(notify=[hook("FAILED")] * 5))
    assert refused(**immediate(notify=[hook("FAILED")] * 6)) == {
        "notify": "must have at most 5 entries"
    }


@pytest.mark.parametrize("wrong", [3, "https://example.com", {"on": ["FAILED"]}, [None], [[]]])
def test_what_are_no_webhooks_is_refused_by_its_field(wrong: Any) -> None:
    assert all(field.startswith("notify") for field in refused(**immediate(notify=wrong)))


def test_a_webhook_takes_no_placeholders() -> None:
    found = refused(**immediate(notify=[hook("FAILED", url="https://example.com/{{run_id}}")]))
    assert set(found) == {"notify.0.url"}


def test_a_crowd_of_wrong_entries_is_refused_as_one() -> None:
    script = {"type": "script", "runtime": "bash", "code": "true"}
    assert set(refused(**immediate(task={**script, "args": [1] * 2_500}))) == {"task.args"}
    env = {f"V{n}": 1 for n in range(1_000)}
    assert set(refused(**immediate(task={**script, "env": env}))) == {"task.env"}
    assert set(refused(**immediate(**{f"f{n}": 1 for n in range(1_000)}))) == {"body"}
    assert set(refused(**immediate(tags=env, retry=env))) == {"tags", "retry"}


def test_payloads_may_be_crowds() -> None:
    sent = immediate(payload=[{"a": n} for n in range(5_000)])
    assert accepted(**sent) == sent
    body = {"type": "http", "url": "https://example.com", "body": [1] * 5_000}
    assert accepted(**immediate(task=body))["task"] == body


def test_many_wrong_fields_are_all_named_and_the_sentence_stays_short() -> None:
    with pytest.raises(Invalid) as caught:
        accepted(**immediate(**{f"f{n}": 1 for n in range(150)}))
    assert len(caught.value.errors) == 150
    assert caught.value.message.endswith("and 140 more")


class TestChange:
    def change(self, old: dict[str, Any], **sent: Any) -> dict[str, Any]:
        return changed_job(old, parse_object(json.dumps(sent).encode()), NOW, NODE_FEATURES)

    def wrong(self, old: dict[str, Any], **sent: Any) -> set[str]:
        with pytest.raises(Invalid) as caught:
            self.change(old, **sent)
        return {error.field for error in caught.value.errors}

    def test_fields_are_replaced_whole_and_the_others_stay(self) -> None:
        old = cron(tags={"a": "1"}, retry={"multiplier": 3}, payload={"x": 1}, max_retries=1)
        new = self.change(old, tags={"b": "2"}, retry={}, payload=[1])
        assert new == {**old, "tags": {"b": "2"}, "retry": {}, "payload": [1]}

    def test_null_takes_a_field_back_to_its_default(self) -> None:
        assert self.change(cron(payload=1, tags={"a": "1"}), payload=None, tags=None) == cron()

    def test_another_type_drops_the_former_types_fields(self) -> None:
        old = cron(dst_gap="SKIP", timezone="Europe/Berlin", max_runs=3, priority="LOW")
        new = self.change(old, schedule_type="FUTURE", schedule_time="2026-12-01T10:00:00Z")
        assert new == future("2026-12-01T10:00:00.000Z", priority="LOW")
        new = self.change(old, schedule_type="INTERVAL", interval_seconds=5)
        kept = {"timezone": "Europe/Berlin", "max_runs": 3, "priority": "LOW"}
        assert new == interval(interval_seconds=5, **kept)

    @pytest.mark.parametrize(
        ("old", "sent", "kind"),
        [
            (cron(dst_gap="SKIP"), {"schedule_time": "2026-12-01T10:00:00.000Z"}, "FUTURE"),
            (cron(dst_gap="SKIP"), {"interval_seconds": 5}, "INTERVAL"),
            (interval(interval_from="COMPLETED"), {"cron_expression": "0 1 * * *"}, "CRON"),
            (future("2026-12-01T10:00:00.000Z"), {"interval_seconds": 5}, "INTERVAL"),
            (immediate(), {"cron_expression": "0 1 * * *", "dst_fold": "BOTH"}, "CRON"),
        ],
    )
    def test_the_field_that_defines_a_type_makes_the_job_one(
        self, old: dict[str, Any], sent: dict[str, Any], kind: str
    ) -> None:
        new = self.change(old, name="moved", **sent)
        assert new == {"name": "moved", "schedule_type": kind, **sent}

    def test_the_defining_field_keeps_what_both_types_know(self) -> None:
        old = cron(timezone="Europe/Berlin", max_runs=3, priority="LOW", dst_gap="SKIP")
        kept = {"timezone": "Europe/Berlin", "max_runs": 3, "priority": "LOW"}
        assert self.change(old, interval_seconds=5) == interval(interval_seconds=5, **kept)

    def test_fields_of_two_types_are_refused(self) -> None:
        at = "2026-12-01T10:00:00Z"
        assert self.wrong(cron(), schedule_time=at, cron_expression="0 1 * * *") == {
            "schedule_time"
        }
        assert self.wrong(cron(), schedule_time=at, interval_seconds=5) == {
            "schedule_time",
            "interval_seconds",
        }
        assert self.wrong(cron(), schedule_time=at, timezone="UTC") == {"timezone"}
        assert self.wrong(cron(), schedule_type="CRON", schedule_time=at) == {"schedule_time"}
        assert self.wrong(cron(), schedule_type=None, schedule_time=at) >= {"schedule_type"}

    def test_what_defines_a_type_is_checked_before_the_type_changes(self) -> None:
        assert self.wrong(cron(), schedule_time=5) == {"schedule_time"}
        assert self.wrong(cron(), schedule_time="2020-01-01T00:00:00Z") == {"schedule_time"}
        assert self.wrong(interval(), cron_expression="0 25 * * *") == {"cron_expression"}

    def test_null_for_the_field_of_another_type_changes_nothing(self) -> None:
        old = cron(dst_gap="SKIP")
        assert self.change(old, schedule_time=None, interval_seconds=None) is old

    def test_a_field_of_another_type_needs_that_type(self) -> None:
        assert self.wrong(cron(), interval_from="COMPLETED") == {"interval_from"}
        assert self.wrong(cron(), schedule_type="INTERVAL") == {"interval_seconds"}

    def test_a_time_that_has_gone_by_stays_until_it_is_changed(self) -> None:
        old = future("2026-01-01T10:00:00.000Z")
        assert self.change(old, name="b")["name"] == "b"
        again = self.change(old, schedule_time="2026-01-01T11:00:00+01:00", max_retries=1)
        assert again == {**old, "max_retries": 1}
        assert self.wrong(old, schedule_time="2026-01-01T10:00:01Z") == {"schedule_time"}

    def test_a_change_may_end_a_schedule(self) -> None:
        end = "2026-11-18T12:00:00.000Z"
        assert self.change(cron(), end_time=end) == cron(end_time=end)

    def test_the_whole_result_is_looked_at(self) -> None:
        assert self.wrong(cron(max_retries=3), delivery="AT_MOST_ONCE") == {"max_retries"}
        assert self.wrong(cron(), name=None, version=4, retry={"x": 1}) == {
            "name",
            "version",
            "retry.x",
        }
