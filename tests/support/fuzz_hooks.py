"""Hooks of schemathesis with generators for our formats. `schemathesis.toml` has the settings."""

import os
from datetime import UTC, datetime
from typing import Any

import schemathesis
from hypothesis import strategies as st

from punctual.domain.tenants.tokens import is_valid_tenant
from tests.support.openapi_answers import closed

_OWN = os.environ.get("PUNCTUAL_TOKEN_ID")
_UNKNOWN_ID = "01a1f03d-b0dd-700e-a7ae-69bae6d94507"
_FIELDS = ("*", "*/5", "0", "1,15", "2-4", "L")
_CRON = st.one_of(
    st.sampled_from(
        [
            "@daily",
            "@hourly",
            "0 0 29 2 *",
            "0 9 ? * MON-FRI",
            "0 0 LW * *",
            "0 0 * * 5#2",
            "rate(5 minutes)",
            "cron(0 12 ? * MON *)",
            "30 2 * * *",
        ]
    ),
    st.builds("{} {} * * *".format, st.sampled_from(_FIELDS[:5]), st.sampled_from(_FIELDS[:5])),
)
_ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]
)
# Only times that the API accepts. The negative cases cover others.
_MOMENTS = st.datetimes(
    datetime.fromisoformat("2027-01-01"),
    datetime.fromisoformat("2199-01-01"),
    timezones=st.just(UTC),
).map(lambda at: at.isoformat().replace("+00:00", "Z"))

schemathesis.openapi.format("cron", _CRON)
schemathesis.openapi.format("timezone", _ZONES)
schemathesis.openapi.format("date-time", _MOMENTS)


@schemathesis.hook
def before_call(context: Any, case: Any, _kwargs: dict[str, Any]) -> None:
    """Replace calls that would end or weaken the campaign.

    Revoking the campaign's own token would make every later answer a 401. Tokens are created for
    the own tenant, because those of another tenant cannot be read.
    """
    if case.method == "DELETE" and case.path_parameters.get("token_id") == _OWN:
        case.path_parameters["token_id"] = _UNKNOWN_ID
    if case.method == "POST" and case.path == "/tokens" and isinstance(case.body, dict):
        tenant = case.body.get("tenant")
        if isinstance(tenant, str) and is_valid_tenant(tenant):
            case.body["tenant"] = "local"


@schemathesis.check
def only_right_items_of_a_batch_are_accepted(context: Any, response: Any, case: Any) -> None:
    """Check that each accepted item of a batch is valid by the schema.

    The batch itself is always 207.
    """
    if response.status_code != 207:
        return
    results = response.json()["results"]
    wrong = [
        index
        for index, (item, result) in enumerate(zip(case.body["jobs"], results, strict=True))
        if result["status"] < 300 and not closed("NewJob").is_valid(item)
    ]
    assert not wrong, f"accepted though they are wrong: {wrong}"
