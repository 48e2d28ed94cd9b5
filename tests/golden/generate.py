"""Write the golden year with the oracle: python -m tests.golden.generate (some minutes)."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.golden.oracle import Oracle, fixed_firings, walk

FILE = Path(__file__).with_name("cron_year.jsonl")
MARGIN = timedelta(days=2)

# For each zone, a year with a notable clock change.
YEARS = (
    ("UTC", 2026),
    ("Europe/Berlin", 2026),
    ("Europe/Dublin", 2026),
    ("America/New_York", 2026),
    ("America/Santiago", 2026),
    ("America/Sao_Paulo", 2018),
    ("America/Caracas", 2016),
    ("Africa/Cairo", 2026),
    ("Africa/Casablanca", 2026),
    ("Antarctica/Troll", 2026),
    ("Asia/Kathmandu", 1986),
    ("Asia/Pyongyang", 2018),
    ("Asia/Tehran", 2022),
    ("Australia/Lord_Howe", 2026),
    ("Pacific/Apia", 2011),
    ("Pacific/Kwajalein", 1993),
)

# Expressions with their rules for clock changes.
EXPRESSIONS = (
    ("0 * * * *", "NEXT", "FIRST"),
    ("*/30 * * * *", "NEXT", "FIRST"),
    ("*/15 0-5 * * *", "NEXT", "FIRST"),
    ("7 */3 * * *", "SKIP", "SECOND"),
    ("0 0 * * *", "NEXT", "FIRST"),
    ("0 0 * * *", "SKIP", "FIRST"),
    ("0 0 * * *", "SHIFT", "BOTH"),
    ("30 0 * * *", "NEXT", "SECOND"),
    ("30 1 * * *", "NEXT", "BOTH"),
    ("15,45 1-3 * * *", "SHIFT", "SECOND"),
    ("15,45 1-3 * * *", "NEXT", "FIRST"),
    ("30 2 * * *", "NEXT", "FIRST"),
    ("30 2 * * *", "SKIP", "SECOND"),
    ("30 2 * * *", "SHIFT", "FIRST"),
    ("0 22-2 * * 5-7", "NEXT", "BOTH"),
    ("59 23 L * *", "NEXT", "FIRST"),
    ("0 12 LW * *", "NEXT", "FIRST"),
    ("0 3 L-3 * *", "NEXT", "FIRST"),
    ("20 4 15W * *", "NEXT", "FIRST"),
    ("0 9 1W,31W * *", "NEXT", "FIRST"),
    ("0 6 * * 5L", "NEXT", "FIRST"),
    ("0 6 * * MON#1,FRI#5", "NEXT", "FIRST"),
    ("0 0 13 * 5", "NEXT", "FIRST"),
    ("0 0 */2 * 1-5", "NEXT", "FIRST"),
    ("10 10 28-3 OCT-FEB ?", "NEXT", "FIRST"),
    ("5 4 * * SUN", "SHIFT", "BOTH"),
    ("cron(0 0 ? * MON-FRI *)", "SKIP", "FIRST"),
    ("cron(0/30 0-3 * * ? *)", "SKIP", "FIRST"),
    ("cron(15 10 ? * 6L 1980-2030)", "SKIP", "FIRST"),
    ("cron(0 8 1 1/2 ? *)", "SKIP", "FIRST"),
)


def lines() -> Iterator[dict[str, str | int]]:
    step = timedelta(minutes=1)
    for zone, year in YEARS:
        start, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
        clock = walk(zone, start - MARGIN, end + MARGIN, step)
        for expression, gap, fold in EXPRESSIONS:
            oracle = Oracle(expression)
            if oracle.fixed:
                times = fixed_firings(oracle, clock, step, gap, fold)
            else:
                times = [instant for instant, local in clock if oracle.matches(local)]
            count, digest = summary(at for at in times if start <= at < end)
            yield {
                "zone": zone,
                "year": year,
                "cron": expression,
                "gap": gap,
                "fold": fold,
                "count": count,
                "digest": digest,
            }


def summary(times: Iterable[datetime]) -> tuple[int, str]:
    """Return the number of times and a hash of them."""
    count, digest = 0, hashlib.sha256()
    for at in times:
        count += 1
        digest.update(f"{at:%Y%m%d%H%M%S}".encode())
    return count, digest.hexdigest()[:16]


if __name__ == "__main__":
    FILE.write_text("".join(json.dumps(line) + "\n" for line in lines()), encoding="ascii")
