"""What apply would do: a decision about values."""

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
    """As the API shows one that runs each minute."""
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
    head = "" if set_name is None else f"set: {set_name}\n"
    jobs = "".join(
        f"  - name: {name}\n    schedule_type: INTERVAL\n    interval_seconds: 60\n{more}"
        for name in names
    )
    return f"{head}jobs:\n{jobs}"


def planned(text: str, *jobs: dict[str, Any], prune: bool = False) -> Plan:
    found, faults = make_plan(
        load_groups([Source("jobs.yaml", text)]), jobs, prune, NOW, ALL_FEATURES
    )
    assert faults == []
    return found


def against(text: str, *jobs: dict[str, Any]) -> list[str]:
    _, faults = make_plan(load_groups([Source("jobs.yaml", text)]), jobs, False, NOW, ALL_FEATURES)
    return [f"{fault.line}: {fault.message}" for fault in faults]


def test_what_is_so_already_is_not_touched() -> None:
    found = planned(a_file("a"), a_job("a"))
    assert (found.step_count, [one.name for one in found.unchanged]) == (0, ["a"])


def test_a_field_that_is_no_longer_declared_goes_back_to_its_default() -> None:
    (change,) = planned(a_file("a"), a_job("a", max_retries=9, priority="HIGH")).changes
    assert change.changed_fields == {"priority": None, "max_retries": None}


def test_a_change_sends_a_field_whole_and_no_other() -> None:
    task = {"type": "http", "url": "https://a", "method": "POST", "follow_redirects": 0}
    text = a_file("a", more="    task: {type: http, url: https://b}\n")
    (change,) = planned(text, a_job("a", task=task)).changes
    assert change.changed_fields == {"task": {"type": "http", "url": "https://b"}}
    assert [found.path for found in change.differences] == ["task.url"]


def test_times_are_the_same_however_they_are_written() -> None:
    text = a_file("a", more="    end_time: 2027-01-01T01:00:00+01:00\n    exclude: [2026-12-24]\n")
    there = a_job("a", end_time="2027-01-01T00:00:00.000Z", exclude=["2026-12-24"])
    assert planned(text, there).step_count == 0


def test_another_type_of_schedule_leaves_the_former_fields_to_the_server() -> None:
    text = "set: s\njobs:\n  - {name: a, schedule_type: CRON, cron_expression: 0 1 * * *}\n"
    (change,) = planned(text, a_job("a")).changes
    assert change.changed_fields == {"schedule_type": "CRON", "cron_expression": "0 1 * * *"}


def test_sets_do_not_see_each_other() -> None:
    found = planned(a_file("a"), a_job("a", "other"), prune=True)
    assert [one.declared.name for one in found.creates] == ["a"]
    assert found.prunes == ()


def test_prune_takes_only_living_jobs_of_the_sets_that_the_file_names() -> None:
    there = [
        a_job("gone"),
        a_job("ended", status="COMPLETED"),
        a_job("by-hand", None),
        a_job("other", "another-set"),
        a_job("kept"),
    ]
    found = planned(a_file("kept"), *there, prune=True)
    assert [one.present["name"] for one in found.prunes] == ["gone"]
    left = planned(a_file("kept"), *there)
    assert ([one.present["name"] for one in left.unpruned], left.prunes) == (["gone"], ())


def test_a_job_that_belongs_to_no_set_joins() -> None:
    (change,) = planned(a_file("a"), a_job("a", None)).changes
    assert change.joins_set
    assert change.changed_fields == {"tags": {"punctual-set": "s"}}
    # What has ended is history, and no job to take over.
    assert len(planned(a_file("a"), a_job("a", None, status="COMPLETED")).creates) == 1


def test_two_that_nothing_tells_apart_are_named() -> None:
    twins = a_job("a", job_id="1"), a_job("a", job_id="2")
    (said,) = against(a_file("a"), *twins)
    assert said == "3: a: 2 jobs have this name (1, 2): give one's id as job_id"
    text = a_file("a", more="    job_id: '2'\n")
    assert [one.name for one in planned(text, *twins).unchanged] == ["a"]
    assert against(a_file("a", more="    job_id: '3'\n"), *twins) == ["6: a: there is no such job"]


def test_a_completed_job_is_known_again_and_a_cancelled_one_is_not() -> None:
    assert planned(a_file("a"), a_job("a", status="COMPLETED")).step_count == 0
    assert len(planned(a_file("a"), a_job("a", status="CANCELLED")).creates) == 1


def test_who_declares_the_same_uses_the_same_key_until_it_is_cancelled() -> None:
    (one,), (other,) = planned(a_file("a")).creates, planned(a_file("a")).creates
    (after,) = planned(a_file("a"), a_job("a", status="CANCELLED")).creates
    (elsewhere,) = planned(a_file("a", set_name="t")).creates
    assert one.idempotency_key == other.idempotency_key
    assert len({one.idempotency_key, after.idempotency_key, elsewhere.idempotency_key}) == 3


def test_a_time_that_has_passed_is_refused_for_a_new_job_and_let_be_for_one_that_ran() -> None:
    text = (
        "jobs:\n  - name: once\n    schedule_type: FUTURE\n"
        "    schedule_time: 2026-11-01T00:00:00Z\n"
    )
    (said,) = against(text)
    assert said.startswith("4: once: schedule_time: is more than 5 seconds in the past")
    there = a_job(
        "once",
        None,
        schedule_type="FUTURE",
        schedule_time="2026-11-01T00:00:00.000Z",
        interval_seconds=None,
        timezone=None,
        interval_from=None,
        status="COMPLETED",
    )
    assert planned(text, there).step_count == 0


def test_what_an_installation_lacks_is_named_before_anything_is_done() -> None:
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
def test_paused_is_declared(paused: str, status: str, step: str | None) -> None:
    text = a_file("a", more=f"    paused: {paused}\n")
    found = planned(text, a_job("a", status=status))
    assert [change.pause_action for change in found.changes] == ([] if step is None else [step])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: the file is empty: it needs `jobs`, and a `set` that names it"),
        ("5", "1: a file has `jobs`, a list"),
        ("jobs: x", "1: a file has `jobs`, a list"),
        ("jobs:\n - x\n", "2: a job is a list of fields, such as name: …"),
        ("set: ''\njobs: []\n", "1: a set's name is text of 1 to 128 characters"),
        ("set: 5\njobs: []\n", "1: a set's name is text of 1 to 128 characters"),
        ("jobs: []\ndefaults: x\n", "2: defaults must be fields of jobs"),
        ("job: []\njobs: []\n", "1: job is not known here: a file has set, defaults and jobs"),
        (
            "jobs:\n - {name: a, schedule_type: IMMEDIATE}\n",
            "2: a declared job has a time: run at once with `punctual jobs create`",
        ),
        (
            a_file("a", more="    tags: {punctual-set: b}\n"),
            "6: the tag punctual-set is written by apply: name the set above the jobs",
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
def test_a_file_that_is_wrong_says_where(text: str, said: str) -> None:
    with pytest.raises(InvalidFiles) as found:
        load_groups([Source("jobs.yaml", text)])
    assert said in [f"{fault.line}: {fault.message}" for fault in found.value.faults]


def test_defaults_are_for_all_jobs_and_tags_come_together() -> None:
    text = (
        "set: s\ndefaults: {max_retries: 1, tags: {a: '1', b: '1'}}\n"
        "jobs:\n  - {name: x, schedule_type: INTERVAL, interval_seconds: 60, tags: {b: '2'}}\n"
    )
    ((job,),) = [group.jobs for group in load_groups([Source("jobs.yaml", text)])]
    assert job.fields["max_retries"] == 1
    assert job.fields["tags"] == {"a": "1", "b": "2", "punctual-set": "s"}


class Jobs:
    """Of a client: answers, or raises, what it is told to, name by name."""

    def __init__(self, **errors: Exception) -> None:
        self.jobs = self
        self.asked: list[str] = []
        self._errors = errors

    def _does(self, what: str, name: str) -> Any:
        self.asked.append(f"{what} {name}")
        if name in self._errors:
            raise self._errors[name]
        return convert_model(Job, a_job(name, version=8))

    def create(self, *, name: str, **_: Any) -> Any:
        return self._does("create", name)

    def update(self, job_id: str, **_: Any) -> Any:
        return self._does("update", job_id.removeprefix("id-of-"))

    def cancel(self, job_id: str, **_: Any) -> Any:
        return self._does("cancel", job_id.removeprefix("id-of-"))

    def pause(self, job_id: str, *, if_match: int | None = None) -> Any:
        return self._does(f"pause {if_match}", job_id.removeprefix("id-of-"))


def a_plan() -> Plan:
    text = a_file("a", "b", "new") + "    paused: true\n"
    return planned(
        text, a_job("a", max_retries=1), a_job("b", max_retries=1), a_job("c"), prune=True
    )


def test_what_one_job_is_refused_does_not_hold_up_the_others() -> None:
    client: Any = Jobs(a=Conflict("no"))
    done = list(execute_plan(client, a_plan()))
    assert client.asked == ["update a", "update b", "cancel c", "create new", "pause None new"]
    assert [(one.action, one.name, one.error is None) for one in done] == [
        ("change", "a", False),
        ("change", "b", True),
        ("cancel", "c", True),
        ("create", "new", True),
    ]


def test_a_server_that_goes_away_ends_it_with_what_was_done_by_then() -> None:
    client: Any = Jobs(c=Unavailable("gone"))
    done = execute_plan(client, a_plan())
    assert [next(done).name, next(done).name] == ["a", "b"]
    with pytest.raises(Unavailable):
        next(done)
    assert client.asked == ["update a", "update b", "cancel c"]


def test_a_change_and_a_pause_go_by_one_version_after_the_other() -> None:
    client: Any = Jobs()
    text = a_file("a", more="    paused: true\n")
    list(execute_plan(client, planned(text, a_job("a", priority="LOW"))))
    assert client.asked == ["update a", "pause 8 a"]


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
def test_defaults_are_those_that_the_server_goes_by(
    schedule: dict[str, Any], more: dict[str, Any]
) -> None:
    declared = {"name": "x", **schedule, **more}
    assert equal_as_json(whole(declared), with_defaults(declared))
