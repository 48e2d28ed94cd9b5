"""The layers of a stack's functions."""

from aws_cdk import Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.build import packaging

LAMBDA_RUNTIME = lambda_.Runtime.PYTHON_3_13
LAMBDA_ARCHITECTURE = lambda_.Architecture.ARM_64


class Layers(Construct):
    """The layers of one stack. Each stack has its own, because an exported layer cannot change."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        target = packaging.target_named(self.node.try_get_context("vendorFor"))
        self.core = self._layer("Core", packaging.core_layer(stack, target), "Punctual's own code")
        self.vendor = self._layer(
            "Vendor", packaging.vendor_layer(stack, target), "The third-party packages of Punctual"
        )

    @property
    def both(self) -> list[lambda_.LayerVersion]:
        return [self.core, self.vendor]

    def _layer(
        self, construct_id: str, code: lambda_.Code, description: str
    ) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            construct_id,
            code=code,
            description=description,
            compatible_runtimes=[LAMBDA_RUNTIME],
            compatible_architectures=[LAMBDA_ARCHITECTURE],
        )
