"""Who may do what: four roles, each with all that the one before it may."""

from enum import IntEnum


class Role(IntEnum):
    VIEWER = 1  # reads
    OPERATOR = 2  # also runs, pauses and cancels
    EDITOR = 3  # also creates and changes jobs
    ADMIN = 4  # also makes tokens, and reads the audit

    @property
    def word(self) -> str:
        """As callers write it.

        >>> Role.OPERATOR.word
        'operator'
        """
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> "Role | None":
        """
        >>> Role.of("editor"), Role.of("root")
        (<Role.EDITOR: 3>, None)
        """
        return _BY_WORD.get(word)


_BY_WORD = {role.word: role for role in Role}
