"""Log lines, for people and for machines."""

import io
import json
from datetime import UTC, datetime

from punctual.node.logs import EventLog

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def log_line(pretty: bool, event: str, **fields: object) -> str:
    stream = io.StringIO()
    EventLog(stream, lambda: NOON, pretty)(event, **fields)
    return stream.getvalue()


def test_pretty_log_entry_is_one_line_without_escapes() -> None:
    line = log_line(True, "run_ended", error="bad\n12:00 forged\x1b[31m\r", status="FAILED")
    assert line.count("\n") == 1
    assert "\x1b" not in line
    assert "\r" not in line
    assert "run ended" in line
    assert "bad\\n12:00 forged" in line


def test_json_log_entry_has_no_empty_fields() -> None:
    record = json.loads(log_line(False, "run_ended", error="", run_id="r", attempt=1))
    assert record == {
        "at": "2026-11-18T12:00:00Z",
        "event": "run_ended",
        "run_id": "r",
        "attempt": 1,
    }
