"""Faults are planned by the names of port methods. A name that no port has would plan nothing."""

import pytest

from punctual.engine.ports.partitions import PartitionLeases
from tests.support.ports import port_methods
from tests.support.simulation.port_faults import READS, REPEATABLE


@pytest.mark.parametrize("names", [READS, REPEATABLE], ids=["reads", "repeatable"])
def test_planned_fault_names_a_port_method(names: frozenset[str]) -> None:
    methods = frozenset(dir(PartitionLeases)).union(*port_methods().values())
    assert names - methods == frozenset()
