"""The monthly budget of the stage: AWS sends mail near the limit and stops nothing."""

from aws_cdk import Stack
from aws_cdk import aws_budgets as budgets
from constructs import Construct

from infra.config.stage import STAGE_TAG, Stage

BUDGET_THRESHOLDS = (("ACTUAL", 80), ("FORECASTED", 100), ("ACTUAL", 100))
"""The thresholds: kind of costs, and percent of the budget."""


class Budget(Construct):
    """A budget. Its name carries the region, because it must be unique in the account.

    It counts resources with the stage's tag, once the account has activated that tag.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: Stage, dollars: int, email: str
    ) -> None:
        super().__init__(scope, construct_id)
        subscriber = budgets.CfnBudget.SubscriberProperty(address=email, subscription_type="EMAIL")
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=f"{stage.prefix}-{Stack.of(self).region}",
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=dollars, unit="USD"),
                cost_filters={"TagKeyValue": [f"user:{STAGE_TAG}${stage.name}"]},
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        notification_type=cost_kind,
                        comparison_operator="GREATER_THAN",
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[subscriber],
                )
                for cost_kind, percent in BUDGET_THRESHOLDS
            ],
        )
