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
    """One image, size, entry point and set of secrets. Equal contents share a definition."""

    image: str
    size: FargateSize
    entry_point: tuple[str, ...] = ()
    secrets: tuple[SecretReference, ...] = ()

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
            stage_parts,
        ]
        digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()
        return digest[:HASH_CHARACTERS]
