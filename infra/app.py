"""The CDK app: `python -m infra.app` writes the templates, without an account or a network."""

import json
import os
import sys
from typing import Any

from aws_cdk import App, Tags, Validations
from cdk_nag import AwsSolutionsChecks, ServerlessChecks

from infra.build.bytecode import NoCompiler
from infra.build.packaging import NotPackaged
from infra.config.cdk_json import CDK_JSON
from infra.config.stage import STAGE_TAG, WrongStage, stage_of
from infra.stacks.api import Api
from infra.stacks.containers import Containers
from infra.stacks.data import Data
from infra.stacks.execution import Execution
from infra.stacks.observability.stack import Observability
from infra.stacks.scheduling import Scheduling


def read_context() -> dict[str, Any]:
    """Return the context of cdk.json, for a run without the CDK's command line."""
    values: dict[str, Any] = json.loads(CDK_JSON.read_text())["context"]
    return values


def add_stacks(app: App) -> App:
    """Add every stack of the stage that the context names, and the checks of cdk-nag."""
    stage = stage_of(app)
    name = f"Punctual-{stage.name}"
    data = Data(app, f"{name}-Data", stage=stage)
    scheduling = Scheduling(app, f"{name}-Scheduling", stage=stage, data=data)
    containers = (
        Containers(app, f"{name}-Containers", stage=stage, data=data, scheduling=scheduling)
        if stage.containers
        else None
    )
    execution = Execution(
        app,
        f"{name}-Execution",
        stage=stage,
        data=data,
        scheduling=scheduling,
        containers=containers,
    )
    api = Api(app, f"{name}-Api", stage=stage, data=data, scheduling=scheduling)
    Observability(
        app,
        f"{name}-Observability",
        stage=stage,
        data=data,
        scheduling=scheduling,
        execution=execution,
        api=api,
        containers=containers,
    )
    Tags.of(app).add("application", "punctual")
    Tags.of(app).add("stage", stage.name)
    Tags.of(app).add(STAGE_TAG, stage.name)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))
    return app


if __name__ == "__main__":
    outdir = os.environ.get("CDK_OUTDIR", "cdk.out")
    try:
        add_stacks(App(context=read_context(), outdir=outdir, analytics_reporting=False)).synth()
    except (WrongStage, NotPackaged, NoCompiler) as error:
        sys.exit(f"synth: {error}")
