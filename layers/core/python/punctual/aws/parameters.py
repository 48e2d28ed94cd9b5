"""SSM parameters. Each read calls SSM."""

from collections.abc import Mapping, Sequence
from typing import cast

from botocore.exceptions import ClientError

from punctual.aws.retries import Client, call_aws, error_code


class Parameter:
    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def read(self) -> str:
        """Return the value. Raise `Unavailable` if the parameter is absent or unreadable."""
        response = call_aws(
            "reading a parameter",
            lambda: self._client().get_parameter(Name=self._name, WithDecryption=True),
        )
        return cast(str, response["Parameter"]["Value"])


class Parameters:
    """Several parameters, each read by a call of its own. Absent ones are left out."""

    def __init__(self, client: Client, names: Sequence[str]) -> None:
        self._client = client
        self._names = names

    def read(self) -> Mapping[str, str]:
        values = {name: self._read_parameter(name) for name in self._names}
        return {name: value for name, value in values.items() if value is not None}

    def _read_parameter(self, name: str) -> str | None:
        def call_ssm() -> str | None:
            try:
                response = self._client().get_parameter(Name=name, WithDecryption=True)
            except ClientError as error:
                if error_code(error) == "ParameterNotFound":
                    return None
                raise
            return cast(str, response["Parameter"]["Value"])

        return call_aws("reading a parameter", call_ssm)
