"""Every kind of executor that exists, with its driver."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import MappingProxyType

from tests.support.executors import containers, functions, nodes
from tests.support.executors.driver import ExecutorDriver

OpenDriver = Callable[[Path], AbstractContextManager[ExecutorDriver]]


def _function(kind: type[functions.FunctionDriver]) -> OpenDriver:
    return lambda _folder: functions.function_driver(kind)


def _container(kind: type[containers.ContainerDriver]) -> OpenDriver:
    return lambda _folder: containers.container_driver(kind)


KINDS: Mapping[str, OpenDriver] = MappingProxyType(
    {
        "thread of a node": partial(nodes.node_driver, nodes.NodeDriver),
        "external executor of a node": partial(nodes.node_driver, nodes.OutsideNodeDriver),
        "executor function": _function(functions.FunctionDriver),
        "waited script": _function(functions.WaitedScriptDriver),
        "handed-over script": _function(functions.HandedOverScriptDriver),
        "external executor of a deployment": _function(functions.OutsideDeploymentDriver),
        "container": _container(containers.ContainerDriver),
        "container with a runner": _container(containers.RunnerContainerDriver),
        "script in a container": _container(containers.ScriptContainerDriver),
    }
)
CLAIM_KINDS = (
    "external executor of a node",
    "handed-over script",
    "external executor of a deployment",
    "container with a runner",
    "script in a container",
)
