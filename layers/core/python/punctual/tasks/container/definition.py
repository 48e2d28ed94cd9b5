"""The content of a task definition: what cannot differ from one start to the next."""

import hashlib
import json
from typing import NamedTuple

from punctual.tasks.container.sizes import FargateSize

HASH_CHARACTERS = 32


class SecretReference(NamedTuple):
    """An environment variable that ECS fills in from a secret, by the secret's ARN."""

    variable: str
    arn: str


class TaskContent(NamedTuple):
    """One image, size, entry point and set of secrets. Equal contents share a definition.

    With `has_init` an init process is the parent of the program. It keeps the whole environment
    of the container, which a script must not read.
    """

    image: str
    size: FargateSize
    entry_point: tuple[str, ...] = ()
    secrets: tuple[SecretReference, ...] = ()
    has_init: bool = True

    def hash(self, *stage_parts: str) -> str:
        """Return the name of this content. `stage_parts` are the settings that go with it.

        >>> content = TaskContent("alpine", FargateSize(0.25, 512))
        >>> content.hash("role") == content.hash("role"), content.hash() == content.hash("role")
        (True, False)
        """
        values = [
            self.image,
            self.size.cpu_units,
            self.size.memory_mb,
            self.entry_point,
            sorted(self.secrets),
            self.has_init,
            stage_parts,
        ]
        digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()
        return digest[:HASH_CHARACTERS]
