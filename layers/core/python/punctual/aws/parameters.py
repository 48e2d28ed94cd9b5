"""One SSM parameter, read when it is asked for."""

from typing import cast

from punctual.aws.calls import Client, answer


class Parameter:
    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def read(self) -> str:
        """Raises `Unavailable` where it cannot be read, or is not there."""
        found = answer("reading a parameter", lambda: self._client().get_parameter(Name=self._name))
        return cast(str, found["Parameter"]["Value"])
