"""Keeps messages and secrets of a process private to its user: the mode of the data directory, and no core dumps.

Timer indexes contain whole messages, and memory contains messages, passwords and keys. So only the owner may access the
directory, and a crash leaves no image of the memory.

Thread rule: called once, by the main thread, before anything is read.
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

    Raises ConfigError if it cannot be used, or if others may read it and this user may not change that.
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
    """Keeps this process, and those it starts, from leaving an image of their memory when they crash.

    On Linux other programs of the same user cannot read its memory either; a debugger needs root.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
