"""The four roles. Each role has all rights of the role before it."""

from enum import IntEnum


class Role(IntEnum):
    VIEWER = 1  # reads
    OPERATOR = 2  # also runs, pauses and cancels
    EDITOR = 3  # also creates and changes jobs
    ADMIN = 4  # also makes tokens, and reads the audit

    @property
    def label(self) -> str:
        """Return the name that callers write.

        >>> Role.OPERATOR.label
        'operator'
        """
        return self.name.lower()

    @classmethod
    def from_label(cls, label: str) -> "Role | None":
        """Return the role with this name, or None.

        >>> Role.from_label("editor"), Role.from_label("root")
        (<Role.EDITOR: 3>, None)
        """
        return _ROLE_BY_LABEL.get(label)


_ROLE_BY_LABEL = {role.label: role for role in Role}
