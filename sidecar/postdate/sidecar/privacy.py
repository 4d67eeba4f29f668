"""Keeps the messages and secrets of a process from other users: restricts the data directory and forbids core dumps.

Timer indexes contain whole messages, and memory contains messages, passwords and keys. So only the owner may access the
directory, and a crash leaves no image of the memory.

Thread rule: the main thread calls these functions before the process handles any message.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import stat
import sys
import tempfile
from pathlib import Path
from typing import Final

from postdate.sidecar.errors import ConfigError

log = logging.getLogger(__name__)

_PRIVATE: Final = 0o700
#: prctl(2). If core dumps are piped to a program, the kernel ignores the limit on their size, but not this flag.
_PR_SET_DUMPABLE: Final = 4


def prepare_data_directory(path: Path) -> None:
    """Creates the data directory, or revokes the rights of group and others on an existing one.

    Raises ConfigError if the directory cannot be used, or if others have access to it and this user cannot revoke it.
    """
    try:
        os.makedirs(path, mode=_PRIVATE, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        _revoke_other_access(path)
    except OSError as error:
        raise ConfigError(
            f"the data directory {path} cannot be used ({error.strerror}): give another with --data"
        ) from error


def _revoke_other_access(path: Path) -> None:
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if not mode & 0o077:
        return
    try:
        path.chmod(_PRIVATE)
    except PermissionError as error:
        raise ConfigError(
            f"the data directory {path} has mode {mode:04o} and belongs to user {status.st_uid}: it contains messages, "
            "so only this user may have access. Give a directory below it with --data, or chmod it to 0700"
        ) from error
    log.warning("the data directory %s had mode %04o; it holds messages, and has mode 0700 now", path, mode)


def forbid_core_dumps() -> None:
    """Prevents this process from leaving an image of its memory when it crashes. Programs that it starts inherit only
    the limit on the size, so each must call this function.

    On Linux, other programs of the same user cannot read the memory of this process either; a debugger needs root.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
