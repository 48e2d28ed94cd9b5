"""Values that several test modules use."""

from datetime import date, timedelta

from tests.support.acceptance.contract import Json

EVERY_HOUR = {"schedule_type": "INTERVAL", "interval_seconds": 3600}


def dates(count: int) -> list[str]:
    return [(date(2030, 1, 1) + timedelta(days=n)).isoformat() for n in range(count)]


def nested(levels: int) -> Json:
    value: Json = 0
    for _ in range(levels):
        value = [value]
    return value
