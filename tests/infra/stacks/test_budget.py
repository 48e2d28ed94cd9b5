"""The monthly budget of a stage: its costs, its subscriber, and stages without one."""

import json
from typing import Any

import pytest

from infra.app import read_context
from infra.config.stage import STAGE_TAG, WrongStage, read_stage
from tests.support.infra.synthesis import STAGES, Synthesis, assembly, full, resources

ON_CALL = "on-call@example.com"


def dev(**values: Any) -> Any:
    return {"dev": {**read_context()["stages"]["dev"], **values}}


def budget(synthesis: Synthesis) -> Any:
    (resource,) = resources(synthesis, "AWS::Budgets::Budget")
    return resource.properties


def test_budget_is_monthly_and_filtered_by_the_stage_tag() -> None:
    properties = budget(full())["Budget"]
    assert properties["BudgetLimit"] == {"Amount": 50, "Unit": "USD"}
    assert (properties["BudgetType"], properties["TimeUnit"]) == ("COST", "MONTHLY")
    assert properties["CostFilters"] == {"TagKeyValue": [f"user:{STAGE_TAG}$prod"]}


def test_budget_name_is_unique_for_each_region() -> None:
    name = budget(full())["Budget"]["BudgetName"]
    assert name == {"Fn::Join": ["", ["punctual-prod-", {"Ref": "AWS::Region"}]]}


def test_alarm_address_is_notified_before_and_after_the_limit() -> None:
    notices = budget(full())["NotificationsWithSubscribers"]
    assert [
        (notice["Notification"]["NotificationType"], notice["Notification"]["Threshold"])
        for notice in notices
    ] == [("ACTUAL", 80), ("FORECASTED", 100), ("ACTUAL", 100)]
    for notice in notices:
        assert notice["Subscribers"] == [{"Address": ON_CALL, "SubscriptionType": "EMAIL"}]


@pytest.mark.parametrize("stage", STAGES)
def test_all_resources_have_the_budget_tag(stage: str) -> None:
    """Another program may use a tag `stage`."""
    text = json.dumps(list(assembly(stage).templates.values()))
    assert text.count(STAGE_TAG) == text.count('"application"') > 40


@pytest.mark.parametrize("stage", STAGES)
def test_stage_without_an_alarm_address_has_no_budget(stage: str) -> None:
    assert resources(assembly(stage), "AWS::Budgets::Budget") == []


def test_alarm_address_without_alarms_is_allowed_with_a_budget() -> None:
    parsed = read_stage("dev", dev(alarmEmail=ON_CALL, budgetDollars=5))
    assert (parsed.alarm_email, parsed.budget_dollars) == (ON_CALL, 5)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "5", True])
def test_budget_must_be_a_whole_number_of_dollars(wrong: Any) -> None:
    with pytest.raises(WrongStage, match="`budgetDollars` must be 1 to 10000000 or null"):
        read_stage("dev", dev(budgetDollars=wrong))
