"""Checks of a change of a job."""

import json
from typing import Any

import pytest

from punctual.domain.errors import Invalid
from punctual.node.features import NODE_FEATURES
from punctual.web.http.json_body import parse_object
from punctual.web.models.job_rules import changed_job
from tests.unit.web.test_job import (
    NOW,
    cron,
    future,
    immediate,
    interval,
)


class TestChange:
    def change(self, old: dict[str, Any], **sent: Any) -> dict[str, Any]:
        return changed_job(old, parse_object(json.dumps(sent).encode()), NOW, NODE_FEATURES)

    def wrong(self, old: dict[str, Any], **sent: Any) -> set[str]:
        with pytest.raises(Invalid) as raised:
            self.change(old, **sent)
        return {error.field for error in raised.value.errors}

    def test_change_replaces_whole_fields_and_keeps_the_others(self) -> None:
        old = cron(tags={"a": "1"}, retry={"multiplier": 3}, payload={"x": 1}, max_retries=1)
        new = self.change(old, tags={"b": "2"}, retry={}, payload=[1])
        assert new == {**old, "tags": {"b": "2"}, "retry": {}, "payload": [1]}

    def test_change_to_null_resets_a_field(self) -> None:
        assert self.change(cron(payload=1, tags={"a": "1"}), payload=None, tags=None) == cron()

    def test_change_of_the_type_drops_fields_of_the_former_type(self) -> None:
        old = cron(dst_gap="SKIP", timezone="Europe/Berlin", max_runs=3, priority="LOW")
        new = self.change(old, schedule_type="FUTURE", schedule_time="2026-12-01T10:00:00Z")
        assert new == future("2026-12-01T10:00:00.000Z", priority="LOW")
        new = self.change(old, schedule_type="INTERVAL", interval_seconds=5)
        kept_fields = {"timezone": "Europe/Berlin", "max_runs": 3, "priority": "LOW"}
        assert new == interval(interval_seconds=5, **kept_fields)

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
    def test_change_of_a_defining_field_changes_the_type(
        self, old: dict[str, Any], sent: dict[str, Any], kind: str
    ) -> None:
        new = self.change(old, name="moved", **sent)
        assert new == {"name": "moved", "schedule_type": kind, **sent}

    def test_change_of_the_type_keeps_common_fields(self) -> None:
        old = cron(timezone="Europe/Berlin", max_runs=3, priority="LOW", dst_gap="SKIP")
        kept_fields = {"timezone": "Europe/Berlin", "max_runs": 3, "priority": "LOW"}
        assert self.change(old, interval_seconds=5) == interval(interval_seconds=5, **kept_fields)

    def test_change_with_fields_of_two_types_is_refused(self) -> None:
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

    def test_change_checks_the_defining_field_before_the_type(self) -> None:
        assert self.wrong(cron(), schedule_time=5) == {"schedule_time"}
        assert self.wrong(cron(), schedule_time="2020-01-01T00:00:00Z") == {"schedule_time"}
        assert self.wrong(interval(), cron_expression="0 25 * * *") == {"cron_expression"}

    def test_change_to_null_of_a_foreign_field_changes_nothing(self) -> None:
        old = cron(dst_gap="SKIP")
        assert self.change(old, schedule_time=None, interval_seconds=None) is old

    def test_change_of_a_foreign_field_requires_its_type(self) -> None:
        assert self.wrong(cron(), interval_from="COMPLETED") == {"interval_from"}
        assert self.wrong(cron(), schedule_type="INTERVAL") == {"interval_seconds"}

    def test_change_keeps_a_past_schedule_time(self) -> None:
        old = future("2026-01-01T10:00:00.000Z")
        assert self.change(old, name="b")["name"] == "b"
        changed = self.change(old, schedule_time="2026-01-01T11:00:00+01:00", max_retries=1)
        assert changed == {**old, "max_retries": 1}
        assert self.wrong(old, schedule_time="2026-01-01T10:00:01Z") == {"schedule_time"}

    def test_change_may_end_a_schedule(self) -> None:
        end = "2026-11-18T12:00:00.000Z"
        assert self.change(cron(), end_time=end) == cron(end_time=end)

    def test_change_validates_the_whole_result(self) -> None:
        assert self.wrong(cron(max_retries=3), delivery="AT_MOST_ONCE") == {"max_retries"}
        assert self.wrong(cron(), name=None, version=4, retry={"x": 1}) == {
            "name",
            "version",
            "retry.x",
        }
