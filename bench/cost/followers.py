"""Compute what pages cost that follow the change feed on AWS."""

from collections.abc import Iterator
from typing import NamedTuple

from bench.cost.meter import Unit
from bench.cost.prices import Prices
from punctual.aws.dynamodb.lists.change_feed import ACTIVE_POLL_SECONDS, IDLE_POLL_SECONDS

PAGES = 50
VISIBLE_HOURS = 8 * 22  # of a month, for each page
ACTIVE_SHARE = 0.1  # of the visible time, in which runs are active
HIDDEN_POLL_SECONDS = 60
AUTHORIZER_SECONDS = 60  # for which API Gateway keeps the answer of the authorizer
SEARCH_GB, SEARCH_SECONDS = 0.5, 0.015  # of a call of job_search that is warm
AUTHORIZER_GB, AUTHORIZER_RUN_SECONDS = 0.25, 0.01
ACTIVE_READS = 6.0  # read units: 20 KB of unsettled rows, and the query itself
QUIET_READS = 5.0  # the empty query, and the four rows of counts
LOG_BYTES = 900  # of a call, in the access log and in the log of the function


class FollowersCost(NamedTuple):
    active_calls: float
    quiet_calls: float
    hidden_calls: float
    dollars: float

    @property
    def calls(self) -> float:
        return self.active_calls + self.quiet_calls + self.hidden_calls


def followers_cost(price_list: Prices) -> FollowersCost:
    """Return the calls and the dollars of a month."""
    visible_seconds = PAGES * VISIBLE_HOURS * 3_600
    hidden_seconds = PAGES * (price_list.assumed["hours_a_month"] - VISIBLE_HOURS) * 3_600
    active = visible_seconds * ACTIVE_SHARE / ACTIVE_POLL_SECONDS
    quiet = visible_seconds * (1 - ACTIVE_SHARE) / IDLE_POLL_SECONDS
    hidden = hidden_seconds / HIDDEN_POLL_SECONDS
    calls = active + quiet + hidden
    authorizations = (visible_seconds + hidden_seconds) / AUTHORIZER_SECONDS
    amounts = {
        Unit.API: calls,
        Unit.REQUEST: calls + authorizations,
        Unit.GB_SECOND: calls * SEARCH_GB * SEARCH_SECONDS
        + authorizations * AUTHORIZER_GB * AUTHORIZER_RUN_SECONDS,
        Unit.READ: active * ACTIVE_READS + (quiet + hidden) * QUIET_READS + authorizations,
        Unit.LOG_BYTE: calls * LOG_BYTES,
    }
    dollars = sum(price_list.units[unit] * amount for unit, amount in amounts.items())
    return FollowersCost(active, quiet, hidden, dollars)


def followers_section(price_list: Prices) -> Iterator[str]:
    cost = followers_cost(price_list)
    yield ""
    yield "## Pages that follow changes"
    yield ""
    yield (
        f"{PAGES} pages, each visible {VISIBLE_HOURS} hours a month, with runs active a tenth of "
        f"that time, make {cost.calls / 1_000_000:.1f} million calls of `GET /changes`: each "
        f"{ACTIVE_POLL_SECONDS} s while something runs, each {IDLE_POLL_SECONDS} s otherwise, and "
        f"each {HIDDEN_POLL_SECONDS} s while they are hidden. This is computed, not measured: "
        f"**${cost.dollars:.2f} a month** for the API, the functions, the reads and the logs."
    )
