"""A session of botocore that finds the models of services faster."""

import gzip
import json
from collections.abc import Sequence
from typing import Any

from botocore.loaders import JSONFileLoader, Loader
from botocore.session import Session

_KINDS = ((".json", open), (".json.gz", gzip.open))


class _Files(JSONFileLoader):
    """Reads plain dicts, which keep their order: ordered ones take three times as long."""

    def load_file(self, file_path: str) -> Any:
        for ending, opened in _KINDS:
            try:
                with opened(file_path + ending, "rb") as file:
                    return json.loads(file.read())
            except FileNotFoundError:
                continue
        return None


class _Known(Loader):
    """Knows what there is: else each client begins with a look into 400 folders, twice."""

    def __init__(self, services: Sequence[str]) -> None:
        super().__init__(file_loader=_Files())
        self._services = services

    def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002
        return list(self._services)


def session(services: Sequence[str]) -> Session:
    """For clients of these services; 30 ms faster at a start than a session as it comes."""
    made = Session()
    made.register_component("data_loader", _Known(services))
    return made
