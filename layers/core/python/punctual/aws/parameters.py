"""One SSM parameter, read when it is asked for."""

from collections.abc import Mapping, Sequence
from typing import cast

from punctual.aws.calls import Client, answer


class Parameter:
    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def read(self) -> str:
        """Raises `Unavailable` where it cannot be read, or is not there."""
        found = answer(
            "reading a parameter",
            lambda: self._client().get_parameter(Name=self._name, WithDecryption=True),
        )
        return cast(str, found["Parameter"]["Value"])


class Parameters:
    """Several, read at once; what is not there is left out."""

    def __init__(self, client: Client, names: Sequence[str]) -> None:
        self._client = client
        self._names = list(names)

    def read(self) -> Mapping[str, str]:
        found = answer(
            "reading parameters",
            lambda: self._client().get_parameters(Names=self._names, WithDecryption=True),
        )
        return {one["Name"]: one["Value"] for one in found["Parameters"]}
