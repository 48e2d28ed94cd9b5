"""The computed cost of pages that follow the change feed."""

from bench.cost.followers import PAGES, followers_cost, followers_section
from bench.cost.prices import prices


def test_fifty_pages_cost_at_most_15_dollars_a_month() -> None:
    assert PAGES == 50
    assert 5 < followers_cost(prices()).dollars <= 15


def test_calls_follow_from_the_hours_and_the_intervals() -> None:
    cost = followers_cost(prices())
    assert round(cost.active_calls) == 50 * 8 * 22 * 3_600 // 10 // 3
    assert round(cost.quiet_calls) == 50 * 8 * 22 * 3_600 * 9 // 10 // 30
    assert round(cost.hidden_calls) == 50 * (730 - 8 * 22) * 60


def test_page_shows_the_sum() -> None:
    text = "\n".join(followers_section(prices()))
    assert f"${followers_cost(prices()).dollars:.2f} a month" in text
