"""The world of the tests of the status function."""

import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any
import pytest
from msgspec.structs import replace
from punctual.aws.dynamodb.control.partitions import DynamoPartitions
from punctual.aws.dynamodb.keys import ROW_LAYOUT, ROW_LAYOUT_ATTRIBUTE, definition_key
from punctual.aws.dynamodb.lists.runs import LIVE_RUN_RETENTION
from punctual.domain.errors import Unavailable
from punctual.domain.job_state import JobStatus
from punctual.domain.run import Reason, Run, RunStatus, Trigger, WaitingRun
from punctual.engine.changes.timer_placement import blank_state
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import Detail, JobKey, JobLabel
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import RunView
from punctual.lambdas.job_search.monitor import DeployedMonitor
from punctual.lambdas.status.handler import StatusHandler, build_handler
from punctual.lambdas.status.run_list import build_run_list_writer
from punctual.web.contract import READ_FUNCTION
from punctual.web.views.run import listed_run_json
from tests.integration.lambdas.test_api import DAILY, load
from tests.support.aws.stream_records import BY_TTL, Stream, is_state_of
from tests.support.builders import (
    JOB,
    NOON,
    a_definition_row,
    a_job_state,
    a_row,
    a_run,
    after,
    an_attempt,
    an_id,
)
from tests.support.deployed.drivers.api import Api, an_api
from tests.support.deployed.drivers.telemetry import RecordedTelemetry
from tests.support.aws.status_world import ENDED, QUEUED, RUNNING, World, place


@pytest.fixture
def world() -> Iterator[World]:
    with an_api(now=after(30)) as api:
        yield World(api)
