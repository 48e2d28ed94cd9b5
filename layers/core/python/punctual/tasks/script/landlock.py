"""Landlock: the kernel denies a process and its children all files but the given ones.

The node reads the Landlock version, and the launcher applies the rules. To start fast, this
module imports only the standard library.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Iterable

# System call numbers. They are equal on all architectures of Python 3.11 on Linux.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ASK_VERSION = 1
RULE_PATH_BENEATH = 1
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1, 2
SCOPED_FROM = 6

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_DIR, MAKE_REG, MAKE_SOCK = 1 << 7, 1 << 8, 1 << 9
MAKE_FIFO, MAKE_SYM, REFER = 1 << 10, 1 << 12, 1 << 13
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15

READ = EXECUTE | READ_FILE | READ_DIR
CHANGE = (
    READ
    | (WRITE_FILE | TRUNCATE | REFER | REMOVE_DIR | REMOVE_FILE)
    | (MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM)
)
DEVICE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
_OF_FILES = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV

Rule = tuple[str, int]


def c_library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


def version() -> int:
    """Return the ABI version of the kernel's Landlock, or 0 without Landlock."""
    if sys.platform != "linux":
        return 0
    found = int(c_library().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ASK_VERSION))
    return max(found, 0)


def handled(abi: int) -> int:
    """Return all file rights that this ABI version can deny."""
    last = {1: MAKE_SYM, 2: REFER, 3: TRUNCATE, 4: TRUNCATE}.get(abi, IOCTL_DEV)
    return (last << 1) - 1


def restrict(library: ctypes.CDLL, abi: int, rules: Iterable[Rule]) -> None:
    """Deny this process everything but the rules, for good. It requires `no_new_privs`."""
    known = handled(abi)
    scopes = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS if abi >= SCOPED_FROM else 0
    # struct landlock_ruleset_attr: file rights, network rights, scopes.
    attributes = b"".join(part.to_bytes(8, sys.byteorder) for part in (known, 0, scopes))
    size = 24 if abi >= SCOPED_FROM else 8
    ruleset = _checked(library.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(size), 0))
    for path, rights in rules:
        _allow(library, ruleset, path, rights & known)
    _checked(library.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow(library: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        # The path is missing or not readable for this user, so no rule is needed.
        return
    try:
        if os.fstat(place).st_mode & 0o170000 != 0o040000:
            rights &= _OF_FILES
        # struct landlock_path_beneath_attr, packed: rights, descriptor.
        rule = rights.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
        _checked(library.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0))
    finally:
        os.close(place)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)
