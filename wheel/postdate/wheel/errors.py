"""The errors of the timer index, by the caller's reaction. A bare `Exception` of rocksdict never leaves this package.

TimerIndexError
├── StorageError        the file system or RocksDB refused: close the index, and reopen it after a delay
│   ├── DiskFull        the same: an open RocksDB may still refuse writes long after space is free again
│   ├── Locked          another process owns the directory: wait, then take a fresh directory
│   └── Unfinished      a seek met more tombstones than its bound allows: repeat it later
├── Corrupt             the bytes fail a check: move the directory aside and start empty
├── FormatMismatch      another version of the format: move the directory aside and start empty
├── IdentityMismatch    belongs to another cluster, topic or partition: `.fields` lists the differences
├── Closed              used after close: a defect of Postdate
└── TornRead            a reader saw only unfinished updates of a wheel: read again later
"""

from __future__ import annotations

import errno
import traceback


class TimerIndexError(Exception):
    """Base of the errors of the timer index."""


class StorageError(TimerIndexError):
    """The file system or RocksDB refused an operation."""


class DiskFull(StorageError):
    """No space is left, or the disk quota is used up. The failed operation changed nothing."""


class Locked(StorageError):
    """Another process has locked the directory, or this process has not closed an earlier index in it."""


class Unfinished(StorageError):
    """A seek met more tombstones than its bound allows."""


class Corrupt(TimerIndexError):
    """Stored bytes fail a check. The directory is useless."""


class FormatMismatch(TimerIndexError):
    """The directory was written with another format version."""

    def __init__(self, found: int, expected: int) -> None:
        super().__init__(f"timer index has format version {found}, this program writes {expected}")


class IdentityMismatch(TimerIndexError):
    """The directory belongs to another shard, or to a topic that was re-created since. `fields` has the names of the
    fields that differ."""

    def __init__(self, fields: tuple[str, ...], detail: str) -> None:
        super().__init__(f"timer index belongs elsewhere: {detail}")
        self.fields = fields


class Closed(TimerIndexError):
    """The timer index was used after it was closed."""


class TornRead(TimerIndexError):
    """No consistent copy of the wheel was possible: its writer is busy, or died during an update."""


def release_frames(error: BaseException) -> None:
    """Clears the frames in the tracebacks of an error and of its causes. A frame that refers to a database would keep
    its LOCK.

    REQUIRES: the functions that raised the error have returned.
    """
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__


def from_rocksdict(error: Exception) -> TimerIndexError:
    """Returns the package's error for an error of rocksdict. The text of the error decides, since rocksdict has one
    class for nearly all errors."""
    text = str(error)
    if type(error).__name__ == "DbClosedError":
        return Closed(text)
    if text.startswith("IO error: lock hold by") or ("LOCK" in text and "Resource temporarily unavailable" in text):
        return Locked(text)
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return DiskFull(text)
    if text.startswith("Result incomplete"):
        return Unfinished(text)
    corrupt = ("Corruption", "Invalid argument: ", "Not implemented: ")
    missing = text.startswith("IO error: No such file or directory")
    if text.startswith(corrupt) or missing or "checksum mismatch" in text:
        return Corrupt(text)
    return StorageError(text)


def from_os_error(error: OSError) -> StorageError:
    """Returns the package's error for an error of the operating system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(str(error))
    return StorageError(str(error))
