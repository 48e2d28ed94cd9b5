"""The inventory of the account by kind and name. A destroy must restore the former one."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Client = Callable[[str], Any]
Names = Iterator[str]


@dataclass(frozen=True)
class Inventory:
    """Names by kind."""

    names: Mapping[str, frozenset[str]]

    def __sub__(self, former: "Inventory") -> "Inventory":
        return Inventory({kind: names - former.names[kind] for kind, names in self.names.items()})

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds with at least one resource."""
        return frozenset(kind for kind, names in self.names.items() if names)

    @property
    def missing(self) -> list[str]:
        """Return the kinds without a resource, except those that a deployment does not have."""
        return [kind for kind, names in self.names.items() if not names and kind not in NONE_OURS]

    def __str__(self) -> str:
        return ", ".join(
            f"{kind} {name}" for kind, names in self.names.items() for name in sorted(names)
        )


def inventory_of(client: Client) -> Inventory:
    return Inventory({kind: frozenset(names(client)) for kind, names in KINDS.items()})


def _listed(service: str, operation: str, items: str, name: str) -> Callable[[Client], Names]:
    def names(client: Client) -> Names:
        for page in client(service).get_paginator(operation).paginate():
            for item in page.get(items, []):
                yield item if isinstance(item, str) else str(item[name])

    return names


def _buckets(client: Client) -> Names:
    return (bucket["Name"] for bucket in client("s3").list_buckets()["Buckets"])


def _apis(client: Client) -> Names:
    return (api["Name"] for api in client("apigatewayv2").get_apis()["Items"])


def _buses(client: Client) -> Names:
    return (bus["Name"] for bus in client("events").list_event_buses()["EventBuses"])


def _rules(client: Client) -> Names:
    for bus in _buses(client):
        rules = client("events").list_rules(EventBusName=bus)["Rules"]
        yield from (f"{bus}/{rule['Name']}" for rule in rules)


def _domain_names(client: Client) -> Names:
    return (domain["DomainName"] for domain in client("apigatewayv2").get_domain_names()["Items"])


def _keys(client: Client) -> Names:
    """Yield customer keys that are not pending deletion. A key cannot be deleted immediately."""
    for key in _listed("kms", "list_keys", "Keys", "KeyId")(client):
        metadata = client("kms").describe_key(KeyId=key)["KeyMetadata"]
        if metadata["KeyManager"] == "CUSTOMER" and metadata["KeyState"] != "PendingDeletion":
            yield key


def _stacks(client: Client) -> Names:
    for page in client("cloudformation").get_paginator("list_stacks").paginate():
        for stack in page["StackSummaries"]:
            if stack["StackStatus"] != "DELETE_COMPLETE":
                yield stack["StackName"]


def _permissions(client: Client) -> Names:
    """Yield inline policies with their role."""
    for role in _listed("iam", "list_roles", "Roles", "RoleName")(client):
        for policy in client("iam").list_role_policies(RoleName=role)["PolicyNames"]:
            yield f"{role}/{policy}"


KINDS: Mapping[str, Callable[[Client], Names]] = {
    "alarm": _listed("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
    "API": _apis,
    "API's domain name": _domain_names,
    "bucket": _buckets,
    "dashboard": _listed("cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
    "event bus": _buses,
    "function": _listed("lambda", "list_functions", "Functions", "FunctionName"),
    "key": _keys,
    "layer": _listed("lambda", "list_layers", "Layers", "LayerName"),
    "log group": _listed("logs", "describe_log_groups", "logGroups", "logGroupName"),
    "mapping": _listed("lambda", "list_event_source_mappings", "EventSourceMappings", "UUID"),
    "parameter": _listed("ssm", "describe_parameters", "Parameters", "Name"),
    "policy": _listed("iam", "list_policies", "Policies", "PolicyName"),
    "queue": _listed("sqs", "list_queues", "QueueUrls", "QueueUrl"),
    "role": _listed("iam", "list_roles", "Roles", "RoleName"),
    "role's policy": _permissions,
    "rule": _rules,
    "stack": _stacks,
    "table": _listed("dynamodb", "list_tables", "TableNames", "TableName"),
    "topic": _listed("sns", "list_topics", "Topics", "TopicArn"),
}
NONE_OURS = ("API's domain name", "policy")
"""The stage has no domain, and its roles have inline policies only."""
