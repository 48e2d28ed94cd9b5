"""What differs between one deployment and the next."""

from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration, RemovalPolicy
from constructs import Construct


class WrongStage(ValueError):
    """The stage asked for is not described, or not described fully, in cdk.json."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One deployment: what protects its data, and how long it keeps what runs leave behind."""

    name: str
    protected: bool
    retention_days: int

    @property
    def removal(self) -> RemovalPolicy:
        return RemovalPolicy.RETAIN if self.protected else RemovalPolicy.DESTROY

    @property
    def retention(self) -> Duration:
        return Duration.days(self.retention_days)


def stage_of(scope: Construct) -> Stage:
    """The stage named by the context value `stage`, as cdk.json describes it under `stages`."""
    name = scope.node.try_get_context("stage")
    stages = scope.node.try_get_context("stages")
    if not isinstance(stages, dict) or name not in stages:
        known = ", ".join(sorted(stages)) if isinstance(stages, dict) else "none"
        raise WrongStage(f"no stage {name!r} in cdk.json; there are: {known}")
    return _described(str(name), stages[name])


def _described(name: str, values: dict[str, Any]) -> Stage:
    protected, days = values.get("protected"), values.get("retentionDays")
    if not isinstance(protected, bool):
        raise WrongStage(f"stage {name!r}: `protected` must be true or false, not {protected!r}")
    if not isinstance(days, int) or isinstance(days, bool) or not 1 <= days <= 3650:
        raise WrongStage(f"stage {name!r}: `retentionDays` must be 1 to 3650, not {days!r}")
    return Stage(name=name, protected=protected, retention_days=days)
