"""What schemathesis is told besides `schemathesis.toml`: how values of our formats look."""

from datetime import UTC, datetime

import schemathesis
from hypothesis import strategies as st

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
# What the API takes; other moments come from the negative cases.
_MOMENTS = st.datetimes(
    min_value=datetime(2027, 1, 1), max_value=datetime(2199, 1, 1), timezones=st.just(UTC)
).map(lambda at: at.isoformat().replace("+00:00", "Z"))

schemathesis.openapi.format("cron", _CRON)
schemathesis.openapi.format("timezone", _ZONES)
schemathesis.openapi.format("date-time", _MOMENTS)
