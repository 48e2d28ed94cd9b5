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

from infra.stacks.observability.alarm_kinds import ALARM_KINDS
from infra.stacks.observability.alarms import RUNBOOK_PAGE
from punctual.aws.operator_settings import SsmOperatorSettings
from punctual.web.contract import API_CALLS
from tests.support.infra.observability import alarms, board, observed, queries
from tests.support.infra.synthesis import assembly, resources

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
    parts = re.split(r"^## (.+)$", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands() -> list[str]:
    """Return all commands, including nested ones."""
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line]
    return [command for line in lines for command in nested(line)]


def nested(line: str) -> Iterator[str]:
    """
    >>> list(nested("a --b $(c $(d --e) --f) --g"))
    ['d --e', 'c X --f', 'a --b X --g']
    """
    while match := re.search(r"\$\(([^()]+(?:\([^()]*\)[^()]*)*)\)", line):
        yield from nested(match[1])
        line = line[: match.start()] + "X" + line[match.end() :]
    loop = re.fullmatch(r"while read .*?; do (.*); done < \S+", line)
    yield loop[1] if loop else line


def of_aws() -> list[list[str]]:
    split = [shlex.split(command.split(" > ")[0].split(" | ")[0]) for command in commands()]
    return [words for words in split if words[0] == "aws"]


@cache
def operation(service: str, name: str) -> OperationModel | None:
    session = botocore.session.get_session()
    model = session.get_service_model({"s3api": "s3"}.get(service, service))
    for candidate in model.operation_names:
        if xform_name(candidate, "-") == name:
            return model.operation_model(candidate)
    return None


def test_every_alarm_has_a_section_and_every_section_an_alarm() -> None:
    first, by_hand = TEXT.split("\n# Alarms\n")[1].split("\n# By hand\n")
    assert re.findall(r"^## (.+)$", first, flags=re.MULTILINE) == list(ALARM_KINDS)
    assert re.findall(r"^## (.+)$", by_hand, flags=re.MULTILINE) == BY_HAND
    for alarm in alarms(assembly("prod")).values():
        assert alarm["AlarmDescription"].rsplit(f"{RUNBOOK_PAGE}#", 1)[1] in sections()


@pytest.mark.parametrize("kind", ALARM_KINDS)
def test_section_describes_meaning_and_action(kind: str) -> None:
    positions = [sections()[kind].find(part) for part in PARTS]
    assert -1 not in positions
    assert positions == sorted(positions)
    assert re.search(r"row \*|the query `", sections()[kind].split("**Likely")[0])


def test_links_have_target_sections() -> None:
    slugs = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in sections()
    }
    links = set(re.findall(r"\]\(#([^)]+)\)", TEXT))
    assert links
    assert links <= slugs


def test_rows_match_the_dashboard() -> None:
    synthesis = assembly("prod")
    texts = [
        widget["properties"]["markdown"] for widget in board(synthesis) if widget["type"] == "text"
    ]
    rows = {text.split("\n")[0].lstrip("# ") for text in texts}
    named = {
        " ".join(name.split()) for name in re.findall(r"\brow \*([^*]+)\*", TEXT, re.IGNORECASE)
    }
    assert len(named) >= 6
    assert named <= rows


def test_queries_match_the_saved_ones() -> None:
    named = {" ".join(name.split()) for name in re.findall(r"query\s+`([^`]+)`", TEXT)}
    saved = set(queries(assembly("prod")))
    assert named == saved


def test_parameters_exist_and_values_are_allowed() -> None:
    existing = {
        parameter.properties["Name"]
        for parameter in resources(assembly("prod"), "AWS::SSM::Parameter")
    }
    put = re.findall(r"--name (/punctual/\$STAGE/[\w-]+) --value (\w+) ", TEXT)
    assert {name for name, _ in put} == set(re.findall(r"/punctual/\$STAGE/[\w-]+", TEXT))
    turned = [(name.replace("$STAGE", "prod"), value) for name, value in put]
    assert {name for name, _ in turned} <= existing
    ssm = Ssm(turned)
    assert SsmOperatorSettings(lambda: ssm, "/punctual/prod/").read() == (16, 120, True, ())
    assert {value for name, value in put if name.endswith("dispatch")} == {"off", "on"}


class Ssm:
    """An SSM client that returns the last written values."""

    def __init__(self, put: list[tuple[str, str]]) -> None:
        self._values = dict(put)

    def get_parameters(self, *, Names: list[str]) -> dict[str, Any]:
        return {"Parameters": [{"Name": name, "Value": self._values[name]} for name in Names]}


def test_events_and_fields_exist_in_the_code() -> None:
    paths = [
        path
        for folder in ("layers/core/python/punctual", "functions")
        for path in (ROOT / folder).rglob("*.py")
    ]
    code = "".join(path.read_text() for path in paths)
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", TEXT))
    assert len(named) > 12
    assert {name for name in named if not re.search(rf"\b{name}\b", code)} == set()


def test_api_calls_match_the_contract() -> None:
    calls = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`]*)`", TEXT))
    assert len(calls) > 3
    assert calls <= {(api_call.method, api_call.path) for api_call in API_CALLS}


def test_named_resources_are_deployed() -> None:
    synthesis = assembly("prod")
    existing = {
        resource.properties[field]
        for kind, field in (
            ("AWS::Lambda::Function", "FunctionName"),
            ("AWS::SQS::Queue", "QueueName"),
            ("AWS::Events::Rule", "Name"),
        )
        for resource in resources(synthesis, kind)
    }
    existing |= {f"punctual-prod-{name}" for name in alarms(synthesis)}
    existing |= {topic["TopicName"] for topic in observed(synthesis, "AWS::SNS::Topic").values()}
    only_dev = {
        queue.properties["QueueName"] for queue in resources(assembly("dev"), "AWS::SQS::Queue")
    }
    existing |= {name.replace("punctual-dev-", "punctual-prod-") for name in only_dev}
    named = set(re.findall(r"punctual-\$STAGE-([\w-]+(?:\.fifo)?)", TEXT))
    assert len(named) > 12
    assert {f"punctual-prod-{name}" for name in named} <= existing
    stacks = set(re.findall(r"Punctual-\$STAGE-(\w+)", TEXT))
    assert stacks <= set(synthesis.templates)
    outputs = set(re.findall(r"OutputKey=='(\w+)'", TEXT))
    assert outputs <= set(synthesis.templates["Api"]["Outputs"])


@pytest.mark.parametrize("words", of_aws(), ids=" ".join)
def test_aws_command_exists_with_its_options(words: list[str]) -> None:
    service, name, *arguments = words[1:]
    options = {argument[2:] for argument in arguments if argument.startswith("--")} - EVERYWHERE
    if name == "wait":
        service_model = botocore.session.get_session().get_waiter_model(service)
        waiters = {xform_name(waiter, "-"): waiter for waiter in service_model.waiter_names}
        name = xform_name(service_model.get_waiter(waiters[arguments[0]]).operation, "-")
    model = operation(service, name)
    assert model is not None, f"{service} {name}"
    shape = model.input_shape
    assert shape is not None
    members = {xform_name(member, "-"): member for member in shape.members}
    for option in options:
        off = option.removeprefix("no-")
        known = option in members or shape.members[members[off]].type_name == SWITCH
        assert known, f"{service} {name} --{option}"
    required = {xform_name(member, "-") for member in shape.required_members}
    assert required <= {option.removeprefix("no-") for option in options}
    # `lambda invoke` has one positional argument, the output file.
    plain = [argument for argument in arguments if not argument.startswith("--")]
    valued = [
        option
        for option in options
        | ({argument[2:] for argument in arguments if argument.startswith("--")} & EVERYWHERE)
        if option in EVERYWHERE or (option in members and not is_switch(model, members[option]))
    ]
    answers = 1 if (service, name) == ("lambda", "invoke") else 0
    waited = 1 if words[2] == "wait" else 0
    assert len(plain) == len(valued) + answers + waited


def is_switch(model: OperationModel, member: str) -> bool:
    assert model.input_shape is not None
    return bool(model.input_shape.members[member].type_name == SWITCH)


def test_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    targets_used = [command.split()[1] for command in commands() if command.startswith("make ")]
    assert set(targets_used) == {"deploy", "token", "restore", "resume"}
    assert set(targets_used) <= set(targets)


def test_python_modules_exist() -> None:
    modules = re.findall(r"python -m ([\w.]+)", TEXT)
    assert modules
    for module in modules:
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file()


def test_commands_use_known_programs_only() -> None:
    first = {command.split()[0] for command in commands()}
    assert first <= {"aws", "make", "git", "curl", "export", ".venv/bin/python"}


def test_commands_show_no_secrets_and_decode_logs() -> None:
    """The keys are stored beside the parameters, and the log of Lambda is base64."""
    for command in commands():
        assert "get-parameters-by-path" not in command
        assert "--with-decryption" not in command
        if "LogResult" in command:
            assert command.endswith(" | base64 --decode")


def test_dead_letter_rule_is_enabled_after_all_messages_have_moved() -> None:
    typed = "".join(f"{command}\n" for command in commands())
    moved = typed.index("start-message-move-task")
    looked = typed.index("ApproximateNumberOfMessages", moved)
    assert moved < looked < typed.index("enable-rule --name punctual-$STAGE-bury")
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL)
    assert not [block for block in blocks if "move-task" in block and "enable-rule" in block]


def test_restore_sections_name_rpo_and_rto() -> None:
    for name in ("Restore to one moment", "A lost region"):
        assert "(RPO)" in sections()[name]
        assert "(RTO)" in sections()[name]
