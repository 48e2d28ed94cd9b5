"""What the runner sends is what the API reads: claims as the models of its calls check them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from punctual.web.http.json_body import parse_object
from punctual.web.models.claims import parse_finishes, parse_renewals, parse_upload
from tests.support.runner.claims_api import ClaimsApi, a_claims_api
from tests.support.runner.runner_process import an_event, run_in_process


@pytest.fixture
def api() -> Iterator[ClaimsApi]:
    with a_claims_api() as api:
        yield api


def as_body(value: Any) -> Any:
    return parse_object(json.dumps(value).encode())


# The largest outputs and logs, bytes that are not text, and a long error.
SCRIPTS = {
    "short": "echo out; echo err >&2",
    "inline": "head -c 262144 /dev/zero | tr '\\0' 'ü'",
    "large": "head -c 11000000 /dev/zero",
    "bytes": "printf '\\377'",
    "error": "head -c 5000 /dev/zero | tr '\\0' '\\1' >&2; exit 255",
    "signal": "kill -9 $$",
    "silent": "exit 0",
}


@pytest.mark.parametrize("code", SCRIPTS.values(), ids=SCRIPTS)
def test_api_reads_what_the_runner_sends(api: ClaimsApi, tmp_path: Path, code: str) -> None:
    run_in_process(an_event(api, code), tmp_path)
    renewals = [parse_renewals(as_body({"claims": [item]}))[0] for item in api.renewed]
    [finish] = parse_finishes(as_body({"claims": api.finished}))
    assert {renewal.runner_id for renewal in renewals} == {finish.runner_id}
    assert [renewal.has_started for renewal in renewals] == [True] + [False] * (len(renewals) - 1)
    log = b"".join(renewal.log for renewal in renewals) + finish.log
    assert log.decode() == api.log()
    for fields in api.uploads:
        assert parse_upload(as_body(fields)).size == len(api.objects["/objects/output"][0])
