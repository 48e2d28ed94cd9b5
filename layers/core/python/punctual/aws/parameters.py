"""SSM parameters. Each read calls SSM."""

from collections.abc import Mapping, Sequence
from typing import cast

from botocore.exceptions import ClientError

from punctual.aws.retries import Client, answer


class Parameter:
    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def read(self) -> str:
        """Return the value. Raise `Unavailable` if the parameter is absent or unreadable."""
        found = answer(
            "reading a parameter",
            lambda: self._client().get_parameter(Name=self._name, WithDecryption=True),
        )
        return cast(str, found["Parameter"]["Value"])


class Parameters:
    """Several parameters, each read by a call of its own. Absent ones are left out."""

    def __init__(self, client: Client, names: Sequence[str]) -> None:
        self._client = client
        self._names = names

    def read(self) -> Mapping[str, str]:
        found = {name: self._one(name) for name in self._names}
        return {name: value for name, value in found.items() if value is not None}

    def _one(self, name: str) -> str | None:
        def ask() -> str | None:
            try:
                found = self._client().get_parameter(Name=name, WithDecryption=True)
            except ClientError as error:
                if error.response["Error"]["Code"] == "ParameterNotFound":
                    return None
                raise
            return cast(str, found["Parameter"]["Value"])

        return answer("reading a parameter", ask)
