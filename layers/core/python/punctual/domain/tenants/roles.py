"""The four roles. Each role has all rights of the role before it."""

from enum import IntEnum


class Role(IntEnum):
    VIEWER = 1  # reads
    OPERATOR = 2  # also runs, pauses and cancels
    EDITOR = 3  # also creates and changes jobs
    ADMIN = 4  # also makes tokens, and reads the audit

    @property
    def word(self) -> str:
        """Return the name that callers write.

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
