"""An archive of the broker's loaded classes, which a JVM maps into memory. A start then takes about half the processor
time.

The first broker that is stopped cleanly writes the archive, and all later ones with the same Java and jars read it (JEP
350). The archive is in the cache directory. A JVM ignores an archive that does not fit it, so a wrong archive costs
only time.
"""

from __future__ import annotations

import hashlib
import os
import signal
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from postdate.tools.dev_broker.jars import cache_dir

#: The exit statuses of a JVM that shut down cleanly, so that its archive is complete: 0, or 143 after SIGTERM.
_COMPLETE = (0, 128 + signal.SIGTERM)


class ClassArchive:
    """The archive for one Java and one directory of jars; each broker has its own object."""

    def __init__(self, java: str, libs: Path) -> None:
        program = Path(java).resolve()
        identity = f"{program} {program.stat().st_mtime_ns} {libs} {libs.stat().st_mtime_ns}"
        self.path = cache_dir() / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.jsa"
        self._partial = self.path.with_suffix(f".{uuid4().hex[:8]}")

    def exists(self) -> bool:
        """True if brokers can start from the archive."""
        return self.path.exists()

    def reading_options(self) -> list[str]:
        """Returns the options of a JVM that uses the archive, or no options if there is no archive."""
        return [f"-XX:SharedArchiveFile={self.path}"] if self.exists() else []

    def options(self) -> list[str]:
        """Returns the options of a JVM that uses the archive or, if there is none, writes it when it ends. `ended`
        completes the archive."""
        return self.reading_options() or [f"-XX:ArchiveClassesAtExit={self._partial}"]

    def ended(self, status: int | None) -> None:
        """Keeps the archive that a JVM with this exit status wrote if it is complete; otherwise deletes it."""
        with suppress(OSError):  # a JVM that read the archive, or that was killed, has written nothing
            if status in _COMPLETE:
                os.replace(self._partial, self.path)
            else:
                self._partial.unlink()
