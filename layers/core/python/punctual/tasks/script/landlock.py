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
VERSION_FLAG = 1
RULE_PATH_BENEATH = 1
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1, 2
MIN_SCOPED_ABI = 6

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_DIR, MAKE_REG, MAKE_SOCK = 1 << 7, 1 << 8, 1 << 9
MAKE_FIFO, MAKE_SYM, REFER = 1 << 10, 1 << 12, 1 << 13
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15

READ_RIGHTS = EXECUTE | READ_FILE | READ_DIR
CHANGE_RIGHTS = (
    READ_RIGHTS
    | (WRITE_FILE | TRUNCATE | REFER | REMOVE_DIR | REMOVE_FILE)
    | (MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM)
)
DEVICE_RIGHTS = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
_FILE_RIGHTS = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV

Rule = tuple[str, int]


def c_library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


def abi_version() -> int:
    """Return the ABI version of the kernel's Landlock, or 0 without Landlock."""
    if sys.platform != "linux":
        return 0
    abi = int(c_library().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION_FLAG))
    return max(abi, 0)


def deniable_rights(abi: int) -> int:
    """Return all file rights that this ABI version can deny."""
    last = {1: MAKE_SYM, 2: REFER, 3: TRUNCATE, 4: TRUNCATE}.get(abi, IOCTL_DEV)
    return (last << 1) - 1


def restrict(library: ctypes.CDLL, abi: int, rules: Iterable[Rule]) -> None:
    """Deny this process everything but the rules, for good. It requires `no_new_privs`."""
    deniable = deniable_rights(abi)
    scopes = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS if abi >= MIN_SCOPED_ABI else 0
    # struct landlock_ruleset_attr: file rights, network rights, scopes.
    attributes = b"".join(part.to_bytes(8, sys.byteorder) for part in (deniable, 0, scopes))
    size = 24 if abi >= MIN_SCOPED_ABI else 8
    ruleset = _check_result(library.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(size), 0))
    for path, rights in rules:
        _allow(library, ruleset, path, rights & deniable)
    _check_result(library.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow(library: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        # The path is missing or not readable for this user, so no rule is needed.
        return
    try:
        if os.fstat(descriptor).st_mode & 0o170000 != 0o040000:
            rights &= _FILE_RIGHTS
        # struct landlock_path_beneath_attr, packed: rights, descriptor.
        rule = rights.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)
        _check_result(library.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0))
    finally:
        os.close(descriptor)


def _check_result(result: int) -> int:
    if result < 0:
        error_number = ctypes.get_errno()
        raise OSError(error_number, os.strerror(error_number))
    return int(result)
