"""The plan of `punctual apply`: a decision about values."""

from datetime import UTC, datetime
from typing import Any

import pytest

from punctual.client import Conflict, Job, Unavailable
from punctual.client.model import convert_model
from punctual.web.models.defaults import with_defaults
from punctual_cli.apply.execute import execute_plan
from punctual_cli.apply.fields import equal_as_json, whole
from punctual_cli.apply.file import ALL_FEATURES, InvalidFiles, Source, load_groups
from punctual_cli.apply.plan import Plan, make_plan

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def a_job(name: str, set_name: str | None = "s", **fields: Any) -> dict[str, Any]:
    """Return a job that runs each minute, as the API shows it."""
    return {
        "job_id": f"id-of-{name}",
        "name": name,
        "schedule_type": "INTERVAL",
        "interval_seconds": 60,
        "timezone": "UTC",
        "interval_from": "SCHEDULED",
        "status": "SCHEDULED",
        "created_at": "2026-11-01T00:00:00.000Z",
        "version": 1,
        "tags": {} if set_name is None else {"punctual-set": set_name},
        **fields,
    }


def a_file(*names: str, more: str = "", set_name: str | None = "s") -> str:
    set_line = "" if set_name is None else f"set: {set_name}\n"
    jobs = "".join(
        f"  - name: {name}\n    schedule_type: INTERVAL\n    interval_seconds: 60\n{more}"
        for name in names
    )
    return f"{set_line}jobs:\n{jobs}"


def plan_of(text: str, *jobs: dict[str, Any], prune: bool = False) -> Plan:
    plan, faults = make_plan(
        load_groups([Source("jobs.yaml", text)]), jobs, prune, NOW, ALL_FEATURES
    )
    assert faults == []
    return plan


def plan_faults(text: str, *jobs: dict[str, Any]) -> list[str]:
    _, faults = make_plan(load_groups([Source("jobs.yaml", text)]), jobs, False, NOW, ALL_FEATURES)
    return [f"{fault.line}: {fault.message}" for fault in faults]


def test_plan_does_not_change_an_equal_job() -> None:
    plan = plan_of(a_file("a"), a_job("a"))
    assert (plan.step_count, [job.name for job in plan.unchanged]) == (0, ["a"])


def test_plan_resets_a_removed_field_to_its_default() -> None:
    (change,) = plan_of(a_file("a"), a_job("a", max_retries=9, priority="HIGH")).changes
    assert change.changed_fields == {"priority": None, "max_retries": None}


def test_plan_sends_a_changed_field_whole_and_no_other() -> None:
    task = {"type": "http", "url": "https://a", "method": "POST", "follow_redirects": 0}
    text = a_file("a", more="    task: {type: http, url: https://b}\n")
    (change,) = plan_of(text, a_job("a", task=task)).changes
    assert change.changed_fields == {"task": {"type": "http", "url": "https://b"}}
    assert [difference.path for difference in change.differences] == ["task.url"]


def test_plan_treats_equal_times_in_other_forms_as_equal() -> None:
    text = a_file("a", more="    end_time: 2027-01-01T01:00:00+01:00\n    exclude: [2026-12-24]\n")
    present = a_job("a", end_time="2027-01-01T00:00:00.000Z", exclude=["2026-12-24"])
    assert plan_of(text, present).step_count == 0


def test_plan_with_a_new_schedule_type_leaves_former_fields_to_the_server() -> None:
    text = "set: s\njobs:\n  - {name: a, schedule_type: CRON, cron_expression: 0 1 * * *}\n"
    (change,) = plan_of(text, a_job("a")).changes
    assert change.changed_fields == {"schedule_type": "CRON", "cron_expression": "0 1 * * *"}


def test_plan_ignores_jobs_of_other_sets() -> None:
    plan = plan_of(a_file("a"), a_job("a", "other"), prune=True)
    assert [step.declared.name for step in plan.creates] == ["a"]
    assert plan.prunes == ()


def test_prune_takes_only_live_jobs_of_the_sets_in_the_file() -> None:
    present = [
        a_job("gone"),
        a_job("ended", status="COMPLETED"),
        a_job("by-hand", None),
        a_job("other", "another-set"),
        a_job("kept"),
    ]
    plan = plan_of(a_file("kept"), *present, prune=True)
    assert [step.present["name"] for step in plan.prunes] == ["gone"]
    unpruned_plan = plan_of(a_file("kept"), *present)
    assert ([step.present["name"] for step in unpruned_plan.unpruned], unpruned_plan.prunes) == (
        ["gone"],
        (),
    )


def test_plan_adds_a_job_without_a_set_to_the_set() -> None:
    (change,) = plan_of(a_file("a"), a_job("a", None)).changes
    assert change.joins_set
    assert change.changed_fields == {"tags": {"punctual-set": "s"}}
    # An ended job is history, and the set does not take it over.
    assert len(plan_of(a_file("a"), a_job("a", None, status="COMPLETED")).creates) == 1


def test_plan_reports_two_jobs_of_one_name_with_their_ids() -> None:
    twins = a_job("a", job_id="1"), a_job("a", job_id="2")
    (fault,) = plan_faults(a_file("a"), *twins)
    assert fault == "3: a: 2 jobs have this name (1, 2); set job_id to the id of one"
    text = a_file("a", more="    job_id: '2'\n")
    assert [job.name for job in plan_of(text, *twins).unchanged] == ["a"]
    assert plan_faults(a_file("a", more="    job_id: '3'\n"), *twins) == [
        "6: a: the job does not exist"
    ]


def test_plan_keeps_a_completed_job_and_replaces_a_cancelled_one() -> None:
    assert plan_of(a_file("a"), a_job("a", status="COMPLETED")).step_count == 0
    assert len(plan_of(a_file("a"), a_job("a", status="CANCELLED")).creates) == 1


def test_plan_keeps_the_idempotency_key_until_the_job_is_cancelled() -> None:
    (first,), (same,) = plan_of(a_file("a")).creates, plan_of(a_file("a")).creates
    (after_cancel,) = plan_of(a_file("a"), a_job("a", status="CANCELLED")).creates
    (other_set,) = plan_of(a_file("a", set_name="t")).creates
    assert first.idempotency_key == same.idempotency_key
    assert (
        len({first.idempotency_key, after_cancel.idempotency_key, other_set.idempotency_key}) == 3
    )


def test_plan_refuses_a_past_time_for_a_new_job_only() -> None:
    text = (
        "jobs:\n  - name: once\n    schedule_type: FUTURE\n"
        "    schedule_time: 2026-11-01T00:00:00Z\n"
    )
    (fault,) = plan_faults(text)
    assert fault.startswith("4: once: schedule_time: is more than 5 seconds in the past")
    present = a_job(
        "once",
        None,
        schedule_type="FUTURE",
        schedule_time="2026-11-01T00:00:00.000Z",
        interval_seconds=None,
        timezone=None,
        interval_from=None,
        status="COMPLETED",
    )
    assert plan_of(text, present).step_count == 0


def test_plan_reports_a_task_type_that_is_not_installed() -> None:
    features = ALL_FEATURES._replace(task_types=frozenset({"event"}))
    text = a_file("a", more="    task: {type: sqs, queue_url: x}\n")
    _, faults = make_plan(load_groups([Source("jobs.yaml", text)]), [], False, NOW, features)
    assert [fault.line for fault in faults] == [6]
    assert "sqs tasks are not in this installation yet" in faults[0].message


@pytest.mark.parametrize(
    ("paused", "status", "step"),
    [
        ("true", "SCHEDULED", "pause"),
        ("false", "PAUSED", "resume"),
        ("true", "PAUSED", None),
        ("false", "SCHEDULED", None),
        ("true", "COMPLETED", None),
    ],
)
def test_plan_pauses_or_resumes_a_job_as_declared(
    paused: str, status: str, step: str | None
) -> None:
    text = a_file("a", more=f"    paused: {paused}\n")
    plan = plan_of(text, a_job("a", status=status))
    assert [change.pause_action for change in plan.changes] == ([] if step is None else [step])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: the file is empty; it must have `jobs`, and may have `set`"),
        ("5", "1: a file must have `jobs`, a list"),
        ("jobs: x", "1: a file must have `jobs`, a list"),
        ("jobs:\n - x\n", "2: a job must be an object with fields, such as name: …"),
        ("set: ''\njobs: []\n", "1: set must be text of 1 to 128 characters"),
        ("set: 5\njobs: []\n", "1: set must be text of 1 to 128 characters"),
        ("jobs: []\ndefaults: x\n", "2: defaults must be fields of jobs"),
        (
            "job: []\njobs: []\n",
            "1: job is not a field of a file; a file has set, defaults and jobs",
        ),
        (
            "jobs:\n - {name: a, schedule_type: IMMEDIATE}\n",
            "2: a declared job must have a schedule; "
            "run a job immediately with `punctual jobs create`",
        ),
        (
            a_file("a", more="    tags: {punctual-set: b}\n"),
            "6: apply writes the tag punctual-set; name the set above the jobs",
        ),
        (
            f"{a_file('a')}---\n{a_file('a')}",
            "9: a is declared twice, first on line 3",
        ),
        (
            a_file("a", more='    payload: {a: "x\\0y"}\n'),
            "6: a: payload.a: must not hold the character U+0000",
        ),
        (a_file("a", more="    nmae: x\n"), "6: a: nmae: is not a field of this call"),
    ],
)
def test_wrong_file_is_reported_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidFiles) as raised:
        load_groups([Source("jobs.yaml", text)])
    assert message in [f"{fault.line}: {fault.message}" for fault in raised.value.faults]


def test_defaults_apply_to_all_jobs_and_tags_are_merged() -> None:
    text = (
        "set: s\ndefaults: {max_retries: 1, tags: {a: '1', b: '1'}}\n"
        "jobs:\n  - {name: x, schedule_type: INTERVAL, interval_seconds: 60, tags: {b: '2'}}\n"
    )
    ((job,),) = [group.jobs for group in load_groups([Source("jobs.yaml", text)])]
    assert job.fields["max_retries"] == 1
    assert job.fields["tags"] == {"a": "1", "b": "2", "punctual-set": "s"}


class FakeJobs:
    """Jobs of a client: each call answers, or raises the error of its job's name."""

    def __init__(self, **errors: Exception) -> None:
        self.jobs = self
        self.calls: list[str] = []
        self._errors = errors

    def _answer(self, action: str, name: str) -> Any:
        self.calls.append(f"{action} {name}")
        if name in self._errors:
            raise self._errors[name]
        return convert_model(Job, a_job(name, version=8))

    def create(self, *, name: str, **_: Any) -> Any:
        return self._answer("create", name)

    def update(self, job_id: str, **_: Any) -> Any:
        return self._answer("update", job_id.removeprefix("id-of-"))

    def cancel(self, job_id: str, **_: Any) -> Any:
        return self._answer("cancel", job_id.removeprefix("id-of-"))

    def pause(self, job_id: str, *, if_match: int | None = None) -> Any:
        return self._answer(f"pause {if_match}", job_id.removeprefix("id-of-"))


def a_plan() -> Plan:
    text = a_file("a", "b", "new") + "    paused: true\n"
    return plan_of(
        text, a_job("a", max_retries=1), a_job("b", max_retries=1), a_job("c"), prune=True
    )


def test_refused_step_does_not_stop_the_other_steps() -> None:
    client: Any = FakeJobs(a=Conflict("no"))
    steps = list(execute_plan(client, a_plan()))
    assert client.calls == ["update a", "update b", "cancel c", "create new", "pause None new"]
    assert [(step.action, step.name, step.error is None) for step in steps] == [
        ("change", "a", False),
        ("change", "b", True),
        ("cancel", "c", True),
        ("create", "new", True),
    ]


def test_unavailable_server_ends_the_plan_after_the_finished_steps() -> None:
    client: Any = FakeJobs(c=Unavailable("gone"))
    steps = execute_plan(client, a_plan())
    assert [next(steps).name, next(steps).name] == ["a", "b"]
    with pytest.raises(Unavailable):
        next(steps)
    assert client.calls == ["update a", "update b", "cancel c"]


def test_pause_after_a_change_uses_the_new_version() -> None:
    client: Any = FakeJobs()
    text = a_file("a", more="    paused: true\n")
    list(execute_plan(client, plan_of(text, a_job("a", priority="LOW"))))
    assert client.calls == ["update a", "pause 8 a"]


@pytest.mark.parametrize(
    "schedule",
    [
        {"schedule_type": "IMMEDIATE"},
        {"schedule_type": "FUTURE", "schedule_time": "2100-01-01T00:00:00.000Z"},
        {"schedule_type": "CRON", "cron_expression": "0 0 * * *"},
        {"schedule_type": "CRON", "cron_expression": "cron(0 0 * * ? *)"},
        {"schedule_type": "INTERVAL", "interval_seconds": 60},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "more",
    [{}, {"task": {"type": "http", "url": "http://a"}}, {"delivery": "AT_MOST_ONCE"}],
    ids=str,
)
def test_declared_defaults_equal_the_defaults_of_the_server(
    schedule: dict[str, Any], more: dict[str, Any]
) -> None:
    declared = {"name": "x", **schedule, **more}
    assert equal_as_json(whole(declared), with_defaults(declared))
