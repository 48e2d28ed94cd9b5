"""The objects that a task of ECS reads: its payload, and the event of our runner.

Each start has its own, because a late end of a former start must not delete those of the next one.
All are deleted when the task has ended. The event holds a claim, and no secret.

The task gets links to both in its environment. A link is long, so ECS reads them from a file where
they do not fit into the call that starts the task.
"""

from collections.abc import Mapping
from types import MappingProxyType

from punctual.engine.ports.blobs import Blobs
from punctual.tasks.container.request import PAYLOAD_URL_VARIABLE, RUN_URL_VARIABLE

PAYLOAD_FILE, RUN_FILE = "payload.json", "run.json"
ENVIRONMENT_FILE = "start.env"  # ECS demands this ending
START_FILE_NAMES: Mapping[str, str] = MappingProxyType(
    {PAYLOAD_URL_VARIABLE: PAYLOAD_FILE, RUN_URL_VARIABLE: RUN_FILE}
)


START_FILES = (*START_FILE_NAMES.values(), ENVIRONMENT_FILE)


def environment_lines(variables: Mapping[str, str]) -> bytes:
    """Return variables as a file that ECS reads.

    >>> environment_lines({"A": "https://s3/a?b=c", "D": "1"})
    b'A=https://s3/a?b=c\\nD=1\\n'
    """
    return "".join(f"{name}={value}\n" for name, value in variables.items()).encode()


def start_folder(tenant: str, job_id: str, run_id: str, start_id: str) -> str:
    """Return the folder of the objects of a start.

    >>> start_folder("acme", "0190-job", "0190-run", "0190-run-2-17")
    'outputs/acme/0190-job/0190-run/0190-run-2-17/'
    """
    return f"outputs/{tenant}/{job_id}/{run_id}/{start_id}/"


def delete_start_files(blobs: Blobs, folder: str) -> None:
    blobs.delete([folder + name for name in START_FILES])
