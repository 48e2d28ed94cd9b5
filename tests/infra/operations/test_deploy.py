"""make deploy, token and destroy against moto, with a stand-in for the CDK's command line."""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from infra.app import read_context
from infra.config.stage import Stage, read_stage
from infra.operations import deploy as program
from infra.operations import webhook_key
from infra.operations.account import BOOTSTRAP_PARAMETER, NotReady, account_of, check_bootstrap
from infra.operations.admin_token import ensure_key
from infra.operations.deploy import deploy, destroy, main, new_token, new_webhook_key
from punctual.auth.authenticator import admin_hash
from punctual.aws.secrets import parameter_name
from punctual.domain.tenants.tokens import has_valid_mac
from punctual.domain.tenants.webhooks import parse_keys
from punctual.lambdas.ssm_secrets import UNSET_SECRET

REGION = "eu-central-1"
ADDRESS = "https://abc.execute-api.eu-central-1.amazonaws.com/v1"
LINK = "https://eu-central-1.console.aws.amazon.com/cloudwatch/home#dashboards/dashboard/a"
HASH = "/punctual/dev/token-hash"
DISPATCH = "/punctual/dev/dispatch"
KEY = "/punctual/dev/token-key"
WEBHOOK_KEY = "/punctual/dev/webhook-key"
MINE = admin_hash(b"k" * 32, "pnc_mine")
TOKEN = re.compile(r"\bpnc_[A-Za-z0-9_-]{56}(?![A-Za-z0-9_-])")


class Printed(list[str]):
    def __call__(self, line: str) -> None:
        self.append(line)

    @property
    def text(self) -> str:
        return "\n".join(self)


class Cdk:
    """A CDK command line with a fixed exit code, which applies the effects of a deploy."""

    def __init__(self, effect: Callable[[], None] = lambda: None, code: int = 0) -> None:
        self.calls: list[list[str]] = []
        self._effect = effect
        self._code = code

    def __call__(self, arguments: Sequence[str]) -> int:
        self.calls.append(list(arguments))
        self._effect()
        for argument in arguments:
            if argument.startswith("--outputs-file="):
                outputs = {"Punctual-dev-Api": {"Address": ADDRESS}}
                text = json.dumps(
                    {**outputs, "Punctual-dev-Observability": {"DashboardLink": LINK}}
                )
                Path(argument.partition("=")[2]).write_text(text)
        return self._code


class Account:
    """An account of moto with Lambda limits, which moto does not have."""

    limit, others = 1_000, 0

    def __init__(self) -> None:
        self._session: Any = boto3.Session()
        self.region_name = self._session.region_name

    def client(self, name: str) -> Any:
        client = self._session.client(name)
        if name == "lambda":
            client.get_account_settings = self._settings
        return client

    def _settings(self) -> dict[str, Any]:
        limits = {
            "ConcurrentExecutions": self.limit,
            "UnreservedConcurrentExecutions": self.limit - self.others,
        }
        return {"AccountLimit": limits}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    monkeypatch.setattr(program, "PROJECT_ROOT", tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        yield Account()


def stage(name: str = "dev") -> Stage:
    return read_stage(name, read_context()["stages"])


def put(session: Any, name: str, value: str) -> None:
    session.client("ssm").put_parameter(Name=name, Value=value, Type="String", Overwrite=True)


def read(session: Any, name: str) -> str:
    response = session.client("ssm").get_parameter(Name=name, WithDecryption=True)
    return str(response["Parameter"]["Value"])


def as_the_template_says(session: Any) -> Callable[[], None]:
    def write() -> None:
        put(session, HASH, UNSET_SECRET)
        put(session, DISPATCH, "on")

    return write


def test_first_deploy_at_a_terminal_shows_the_token_once_and_stores_its_hash(
    session: Any, tmp_path: Path
) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    printed, cdk = Printed(), Cdk(as_the_template_says(session))
    assert deploy(stage(), session, cdk, printed, is_terminal=True) == 0
    (token,) = set(TOKEN.findall(printed.text))
    assert printed.text.count("shown only once") == 1
    key = ensure_key(session.client("ssm"), "/punctual/dev/")
    assert has_valid_mac(key, token)
    assert read(session, HASH) == admin_hash(key, token)
    assert read(session, KEY) not in printed.text
    assert f"The API: {ADDRESS}" in printed.text
    assert f"The dashboard: {LINK}" in printed.text
    assert f'curl -s {ADDRESS}/jobs -H "Authorization: Bearer {token}"' in printed.text
    assert not (tmp_path / ".tokens").exists()
    ((command, *arguments),) = cdk.calls
    assert command == "deploy"
    assert {"--all", "--require-approval=never", "--context=stage=dev"} <= set(arguments)


def test_second_deploy_keeps_the_token(session: Any) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    put(session, HASH, MINE)
    printed = Printed()
    assert deploy(stage(), session, Cdk(), printed, ["--context=vendorFor=host"]) == 0
    assert read(session, HASH) == MINE
    assert TOKEN.findall(printed.text) == []
    assert "Bearer $PUNCTUAL_TOKEN" in printed.text


def test_parameters_set_by_an_operator_survive_a_deploy(session: Any) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    put(session, HASH, MINE)
    put(session, DISPATCH, "off")
    printed = Printed()
    assert deploy(stage(), session, Cdk(as_the_template_says(session)), printed) == 0
    assert (read(session, HASH), read(session, DISPATCH)) == (MINE, "off")
    assert f"{DISPATCH} has its value from before" in printed.text


def test_failed_deploy_creates_no_token_and_restores_the_former_one(session: Any) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    put(session, HASH, MINE)
    printed = Printed()
    assert deploy(stage(), session, Cdk(as_the_template_says(session), code=1), printed) == 1
    assert read(session, HASH) == MINE
    assert TOKEN.findall(printed.text) == []


def test_token_key_is_created_before_the_stacks_and_only_once(
    session: Any,
) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    keys_seen: list[str] = []

    def record_key() -> None:
        as_the_template_says(session)()
        keys_seen.append(read(session, KEY))

    assert deploy(stage(), session, Cdk(record_key), Printed()) == 0
    assert deploy(stage(), session, Cdk(record_key), Printed()) == 0
    assert new_token(stage(), session, Printed()) == 0
    assert {*keys_seen, read(session, KEY)} == {keys_seen[0]}
    assert len(b64decode(keys_seen[0])) == 32
    parameter = session.client("ssm").get_parameter(Name=KEY)["Parameter"]
    assert parameter["Type"] == "SecureString"


def test_invalid_token_key_is_reported(session: Any) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    put(session, KEY, "unset")
    cdk = Cdk()
    with pytest.raises(NotReady, match="token-key has no valid key"):
        deploy(stage(), session, cdk, Printed())
    assert cdk.calls == []


def test_webhook_key_is_separate_and_created_once(session: Any) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    printed = Printed()
    assert deploy(stage(), session, Cdk(as_the_template_says(session)), printed) == 0
    first = read(session, WEBHOOK_KEY)
    assert deploy(stage(), session, Cdk(as_the_template_says(session)), printed) == 0
    assert read(session, WEBHOOK_KEY) == first != read(session, KEY)
    assert len(parse_keys(first)) == 1
    assert first not in printed.text
    parameter = session.client("ssm").get_parameter(Name=WEBHOOK_KEY)["Parameter"]
    assert parameter["Type"] == "SecureString"


def test_new_webhook_key_precedes_the_former_and_drops_the_oldest(
    session: Any,
) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    printed = Printed()
    with pytest.raises(NotReady, match="not deployed here"):
        new_webhook_key(stage(), session, printed)
    deploy(stage(), session, Cdk(as_the_template_says(session)), printed)
    keys_seen = [parse_keys(read(session, WEBHOOK_KEY))]
    for _ in range(2):
        assert new_webhook_key(stage(), session, printed) == 0
        keys_seen.append(parse_keys(read(session, WEBHOOK_KEY)))
    assert [len(keys) for keys in keys_seen] == [1, 2, 2]
    assert (keys_seen[1][1], keys_seen[2][1]) == (keys_seen[0][0], keys_seen[1][0])
    assert len({keys[0] for keys in keys_seen}) == 3
    put(session, WEBHOOK_KEY, "unset")
    with pytest.raises(NotReady, match="webhook-key has no valid key"):
        deploy(stage(), session, Cdk(), printed)


def test_account_without_bootstrap_is_refused_with_the_command(session: Any) -> None:
    account, region = account_of(session)
    with pytest.raises(NotReady, match=r"not bootstrapped in eu-central-1; run: .*cdk bootstrap"):
        check_bootstrap(session, account, region)
    put(session, BOOTSTRAP_PARAMETER, "5")
    with pytest.raises(NotReady, match=r"old bootstrap \(5\)"):
        check_bootstrap(session, account, region)
    cdk = Cdk()
    with pytest.raises(NotReady):
        deploy(stage(), session, cdk, Printed())
    assert cdk.calls == []


def test_missing_region_is_reported() -> None:
    with pytest.raises(NotReady, match=r"no region is set\. Set AWS_REGION="):
        account_of(type("Nowhere", (), {"region_name": None})())


def test_missing_credentials_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    assert main(["deploy", "dev"]) == 1
    error = capsys.readouterr().err
    assert error == "deploy: no working AWS credentials: Unable to locate credentials\n"


def test_unknown_stage_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "qa"]) == 1
    assert "cdk.json has no stage 'qa'; it has dev, prod" in capsys.readouterr().err


def test_new_token_replaces_the_former(session: Any) -> None:
    put(session, HASH, MINE)
    first, second = Printed(), Printed()
    for printed in (first, second):
        assert new_token(stage(), session, printed, is_terminal=True) == 0
    (former,), (other,) = TOKEN.findall(first.text), TOKEN.findall(second.text)
    assert former != other
    key = ensure_key(session.client("ssm"), "/punctual/dev/")
    assert read(session, HASH) == admin_hash(key, other)


def test_token_of_an_undeployed_stage_is_refused(session: Any) -> None:
    with pytest.raises(NotReady, match="the stage is not deployed here"):
        new_token(stage(), session, Printed())


def test_protected_stage_is_not_destroyed(session: Any) -> None:
    cdk = Cdk()
    with pytest.raises(NotReady, match=r"stage prod is protected.*`protected` to false"):
        destroy(stage("prod"), session, cdk, Printed(), is_confirmed=True)
    assert cdk.calls == []


def test_stage_without_protection_is_destroyed_completely(session: Any) -> None:
    """As in docs/deploying.md: set `protected` to false, then deploy and destroy."""
    put(session, BOOTSTRAP_PARAMETER, "21")
    opened = stage()
    protected = replace(opened, protected=True)
    assert deploy(protected, session, Cdk(as_the_template_says(session)), Printed()) == 0
    cdk = Cdk()
    with pytest.raises(NotReady, match="stage dev is protected"):
        destroy(protected, session, cdk, Printed(), is_confirmed=True)
    assert cdk.calls == []
    assert (
        deploy(opened, session, cdk, Printed())
        == destroy(opened, session, cdk, Printed(), True)
        == 0
    )
    assert [call[0] for call in cdk.calls] == ["deploy", "destroy", "destroy"]


def test_destroy_requires_confirmation(session: Any) -> None:
    cdk = Cdk()
    with pytest.raises(NotReady, match="make destroy STAGE=dev YES=1"):
        destroy(stage(), session, cdk, Printed(), is_confirmed=False)
    assert cdk.calls == []


def test_destroy_empties_the_buckets_after_their_writers_are_gone(session: Any) -> None:
    s3 = session.client("s3")
    bucket = {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "outputs"}}
    template = json.dumps({"Resources": {"Bucket": bucket}})
    session.client("cloudformation").create_stack(
        StackName="Punctual-dev-Data", TemplateBody=template
    )
    s3.put_bucket_versioning(Bucket="outputs", VersioningConfiguration={"Status": "Enabled"})
    for _ in range(2):
        s3.put_object(Bucket="outputs", Key="outputs/a", Body=b"1")
    s3.delete_object(Bucket="outputs", Key="outputs/a")
    counts: list[int] = []

    def count_versions() -> None:
        listing = s3.list_object_versions(Bucket="outputs")
        counts.append(len(listing.get("Versions", [])) + len(listing.get("DeleteMarkers", [])))

    ensure_key(session.client("ssm"), "/punctual/dev/")
    webhook_key.ensure_key(session.client("ssm"), "/punctual/dev/")
    for number in range(21):
        put(session, parameter_name("dev", "acme", f"bank-{number}"), "1")
    of_another_stage = parameter_name("develop", "acme", "bank")
    put(session, of_another_stage, "1")
    printed, cdk = Printed(), Cdk(count_versions)
    assert destroy(stage(), session, cdk, printed, is_confirmed=True) == 0
    remaining = session.client("ssm").describe_parameters()["Parameters"]
    assert [parameter["Name"] for parameter in remaining] == [of_another_stage]
    assert "21 secrets of jobs removed." in printed.text
    assert counts == [3, 0]
    assert [call[:2] for call in cdk.calls] == [
        ["destroy", "Punctual-dev-Scheduling"],
        ["destroy", "--all"],
    ]
    assert "3 objects and versions removed" in printed.text


def test_failed_destroy_keeps_the_token_key(session: Any) -> None:
    key = ensure_key(session.client("ssm"), "/punctual/dev/")
    assert destroy(stage(), session, Cdk(code=7), Printed(), is_confirmed=True) == 7
    assert ensure_key(session.client("ssm"), "/punctual/dev/") == key


def test_destroy_stops_if_the_cdk_fails(session: Any) -> None:
    cdk = Cdk(code=7)
    assert destroy(stage(), session, cdk, Printed(), is_confirmed=True) == 7
    assert len(cdk.calls) == 1


def test_token_without_a_terminal_is_written_to_a_private_file(
    session: Any, tmp_path: Path
) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    printed = Printed()
    assert deploy(stage(), session, Cdk(as_the_template_says(session)), printed) == 0
    (path,) = (tmp_path / ".tokens").iterdir()
    token = path.read_text().strip()
    key = ensure_key(session.client("ssm"), "/punctual/dev/")
    assert read(session, HASH) == admin_hash(key, token)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert TOKEN.findall(printed.text) == []
    assert str(path) in printed.text
    assert "Bearer $PUNCTUAL_TOKEN" in printed.text


def test_new_token_without_a_terminal_replaces_the_former_file(
    session: Any, tmp_path: Path
) -> None:
    put(session, HASH, MINE)
    path = tmp_path / ".tokens" / f"dev-123456789012-{REGION}"
    path.parent.mkdir()
    path.write_text("former")
    path.chmod(0o644)
    printed = Printed()
    assert new_token(stage(), session, printed) == 0
    assert has_valid_mac(
        ensure_key(session.client("ssm"), "/punctual/dev/"), path.read_text().strip()
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert TOKEN.findall(printed.text) == []
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("attached", "environment", "expected"),
    [(True, {}, True), (False, {}, False), (True, {"CI": "true"}, False)],
)
def test_ci_output_is_not_a_terminal(
    monkeypatch: pytest.MonkeyPatch, attached: bool, environment: dict[str, str], expected: bool
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: attached, raising=False)
    assert program.is_at_terminal(environment) is expected


def test_token_command_checks_for_a_terminal(
    session: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output of pytest is not a terminal."""
    put(session, HASH, MINE)
    monkeypatch.setenv("AWS_REGION", REGION)
    assert main(["token", "dev"]) == 0
    assert TOKEN.findall(capsys.readouterr().out) == []


def test_webhook_key_command_prints_no_key(
    session: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    webhook_key.ensure_key(session.client("ssm"), "/punctual/dev/")
    monkeypatch.setenv("AWS_REGION", REGION)
    assert main(["webhook-key", "dev"]) == 0
    output = capsys.readouterr().out
    stored = read(session, WEBHOOK_KEY)
    assert all(part not in output for part in stored.split())


def test_deploy_without_an_alarm_address_prints_a_warning(session: Any) -> None:
    put(session, BOOTSTRAP_PARAMETER, "21")
    printed = Printed()
    assert program.deploy(stage("prod"), session, Cdk(code=1), printed) == 1
    assert printed.text.count("`alarmEmail` of prod is null") == 1
    for quiet in (replace(stage("prod"), alarm_email="on-call@example.com"), stage("dev")):
        printed = Printed()
        deploy(quiet, session, Cdk(code=1), printed)
        assert "alarmEmail" not in printed.text
