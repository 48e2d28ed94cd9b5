"""The runbook has a section for every alarm and names only existing things."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name
from botocore.model import OperationModel

from infra.stacks.observability.alarms import RUNBOOK_PAGE
from infra.stacks.observability.kinds import ALARM_KINDS
from punctual.aws.operator_settings import SsmOperatorSettings
from punctual.web.contract import API_CALLS
from tests.support.infra.observed import alarms, board, observed, queries
from tests.support.infra.synthesised import assembly, resources

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / RUNBOOK_PAGE).read_text()
PARTS = ("**For users:**", "**Look first:**", "**Likely causes:**", "**Do:**", "**Over when:**")
BY_HAND = [
    "Everything is late",
    "Pause all dispatch",
    "Catch up after an outage",
    "Raise the shards",
    "Change what a tenant may",
    "Redrive what failed",
    "A first deployment that failed",
    "Roll back a deployment",
    "Restore to one moment",
    "A lost region",
    "Rotate the admin token",
]
EVERYWHERE = {"query", "output", "max-items", "region", "profile"}
"""Options of every AWS CLI command."""

SWITCH = "boolean"


def sections() -> dict[str, str]:
    """Return the sections by heading."""
    found = re.split(r"^## (.+)$", TEXT, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def commands() -> list[str]:
    """Return all commands, including nested ones."""
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line]
    return [one for line in lines for one in nested(line)]


def nested(line: str) -> Iterator[str]:
    """
    >>> list(nested("a --b $(c $(d --e) --f) --g"))
    ['d --e', 'c X --f', 'a --b X --g']
    """
    while found := re.search(r"\$\(([^()]+(?:\([^()]*\)[^()]*)*)\)", line):
        yield from nested(found[1])
        line = line[: found.start()] + "X" + line[found.end() :]
    loop = re.fullmatch(r"while read .*?; do (.*); done < \S+", line)
    yield loop[1] if loop else line


def of_aws() -> list[list[str]]:
    split = [shlex.split(one.split(" > ")[0].split(" | ")[0]) for one in commands()]
    return [words for words in split if words[0] == "aws"]


@cache
def operation(service: str, name: str) -> OperationModel | None:
    session = botocore.session.get_session()
    model = session.get_service_model({"s3api": "s3"}.get(service, service))
    for one in model.operation_names:
        if xform_name(one, "-") == name:
            return model.operation_model(one)
    return None


def test_every_alarm_has_a_section_and_every_section_an_alarm() -> None:
    first, by_hand = TEXT.split("\n# Alarms\n")[1].split("\n# By hand\n")
    assert re.findall(r"^## (.+)$", first, flags=re.MULTILINE) == list(ALARM_KINDS)
    assert re.findall(r"^## (.+)$", by_hand, flags=re.MULTILINE) == BY_HAND
    for alarm in alarms(assembly("prod")).values():
        assert alarm["AlarmDescription"].rsplit(f"{RUNBOOK_PAGE}#", 1)[1] in sections()


@pytest.mark.parametrize("kind", ALARM_KINDS)
def test_section_describes_meaning_and_action(kind: str) -> None:
    found = [sections()[kind].find(part) for part in PARTS]
    assert -1 not in found
    assert found == sorted(found)
    assert re.search(r"row \*|the query `", sections()[kind].split("**Likely")[0])


def test_links_have_target_sections() -> None:
    slugs = {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in sections()}
    links = set(re.findall(r"\]\(#([^)]+)\)", TEXT))
    assert links
    assert links <= slugs


def test_rows_match_the_dashboard() -> None:
    made = assembly("prod")
    texts = [one["properties"]["markdown"] for one in board(made) if one["type"] == "text"]
    rows = {text.split("\n")[0].lstrip("# ") for text in texts}
    named = {" ".join(one.split()) for one in re.findall(r"\brow \*([^*]+)\*", TEXT, re.IGNORECASE)}
    assert len(named) >= 6
    assert named <= rows


def test_queries_match_the_saved_ones() -> None:
    named = {" ".join(one.split()) for one in re.findall(r"query\s+`([^`]+)`", TEXT)}
    saved = set(queries(assembly("prod")))
    assert named == saved


def test_parameters_exist_and_values_are_allowed() -> None:
    there = {one.properties["Name"] for one in resources(assembly("prod"), "AWS::SSM::Parameter")}
    put = re.findall(r"--name (/punctual/\$STAGE/[\w-]+) --value (\w+) ", TEXT)
    assert {name for name, _ in put} == set(re.findall(r"/punctual/\$STAGE/[\w-]+", TEXT))
    turned = [(name.replace("$STAGE", "prod"), value) for name, value in put]
    assert {name for name, _ in turned} <= there
    ssm = Ssm(turned)
    assert SsmOperatorSettings(lambda: ssm, "/punctual/prod/").read() == (16, 120, True, ())
    assert {value for name, value in put if name.endswith("dispatch")} == {"off", "on"}


class Ssm:
    """An SSM client that returns the last written values."""

    def __init__(self, put: list[tuple[str, str]]) -> None:
        self._values = dict(put)

    def get_parameters(self, *, Names: list[str]) -> dict[str, Any]:
        return {"Parameters": [{"Name": one, "Value": self._values[one]} for one in Names]}


def test_events_and_fields_exist_in_the_code() -> None:
    paths = [
        path
        for folder in ("layers/core/python/punctual", "functions")
        for path in (ROOT / folder).rglob("*.py")
    ]
    code = "".join(path.read_text() for path in paths)
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", TEXT))
    assert len(named) > 12
    assert {one for one in named if not re.search(rf"\b{one}\b", code)} == set()


def test_api_calls_match_the_contract() -> None:
    calls = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`]*)`", TEXT))
    assert len(calls) > 3
    assert calls <= {(one.method, one.path) for one in API_CALLS}


def test_named_resources_are_deployed() -> None:
    made = assembly("prod")
    there = {
        one.properties[field]
        for kind, field in (
            ("AWS::Lambda::Function", "FunctionName"),
            ("AWS::SQS::Queue", "QueueName"),
            ("AWS::Events::Rule", "Name"),
        )
        for one in resources(made, kind)
    }
    there |= {f"punctual-prod-{name}" for name in alarms(made)}
    there |= {one["TopicName"] for one in observed(made, "AWS::SNS::Topic").values()}
    only_dev = {
        one.properties["QueueName"] for one in resources(assembly("dev"), "AWS::SQS::Queue")
    }
    there |= {one.replace("punctual-dev-", "punctual-prod-") for one in only_dev}
    named = set(re.findall(r"punctual-\$STAGE-([\w-]+(?:\.fifo)?)", TEXT))
    assert len(named) > 12
    assert {f"punctual-prod-{one}" for one in named} <= there
    stacks = set(re.findall(r"Punctual-\$STAGE-(\w+)", TEXT))
    assert stacks <= set(made.templates)
    outputs = set(re.findall(r"OutputKey=='(\w+)'", TEXT))
    assert outputs <= set(made.templates["Api"]["Outputs"])


@pytest.mark.parametrize("words", of_aws(), ids=" ".join)
def test_aws_command_exists_with_its_options(words: list[str]) -> None:
    service, name, *rest = words[1:]
    given = {one[2:] for one in rest if one.startswith("--")} - EVERYWHERE
    if name == "wait":
        service_model = botocore.session.get_session().get_waiter_model(service)
        waiters = {xform_name(one, "-"): one for one in service_model.waiter_names}
        name = xform_name(service_model.get_waiter(waiters[rest[0]]).operation, "-")
    model = operation(service, name)
    assert model is not None, f"{service} {name}"
    shape = model.input_shape
    assert shape is not None
    members = {xform_name(one, "-"): one for one in shape.members}
    for option in given:
        off = option.removeprefix("no-")
        known = option in members or shape.members[members[off]].type_name == SWITCH
        assert known, f"{service} {name} --{option}"
    required = {xform_name(one, "-") for one in shape.required_members}
    assert required <= {one.removeprefix("no-") for one in given}
    # `lambda invoke` has one positional argument, the output file.
    plain = [one for one in rest if not one.startswith("--")]
    valued = [
        one
        for one in given | ({one[2:] for one in rest if one.startswith("--")} & EVERYWHERE)
        if one in EVERYWHERE or (one in members and not is_switch(model, members[one]))
    ]
    answers = 1 if (service, name) == ("lambda", "invoke") else 0
    waited = 1 if words[2] == "wait" else 0
    assert len(plain) == len(valued) + answers + waited


def is_switch(model: OperationModel, member: str) -> bool:
    assert model.input_shape is not None
    return bool(model.input_shape.members[member].type_name == SWITCH)


def test_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    made = [one.split()[1] for one in commands() if one.startswith("make ")]
    assert set(made) == {"deploy", "token", "restore", "resume"}
    assert set(made) <= set(targets)


def test_python_modules_exist() -> None:
    modules = re.findall(r"python -m ([\w.]+)", TEXT)
    assert modules
    for one in modules:
        assert (ROOT / f"{one.replace('.', '/')}.py").is_file()


def test_commands_use_known_programs_only() -> None:
    first = {one.split()[0] for one in commands()}
    assert first <= {"aws", "make", "git", "curl", "export", ".venv/bin/python"}


def test_commands_show_no_secrets_and_decode_logs() -> None:
    """The keys are stored beside the parameters, and the log of Lambda is base64."""
    for one in commands():
        assert "get-parameters-by-path" not in one
        assert "--with-decryption" not in one
        if "LogResult" in one:
            assert one.endswith(" | base64 --decode")


def test_dead_letter_rule_is_enabled_after_all_messages_have_moved() -> None:
    typed = "".join(f"{one}\n" for one in commands())
    moved = typed.index("start-message-move-task")
    looked = typed.index("ApproximateNumberOfMessages", moved)
    assert moved < looked < typed.index("enable-rule --name punctual-$STAGE-bury")
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
    assert not [one for one in blocks if "move-task" in one and "enable-rule" in one]


def test_restore_sections_name_rpo_and_rto() -> None:
    for name in ("Restore to one moment", "A lost region"):
        assert "(RPO)" in sections()[name]
        assert "(RTO)" in sections()[name]
