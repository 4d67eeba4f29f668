"""Secrets in client properties: masked when they are formatted, and read again if their file changes.

A new client reads the password from its file. A running producer, consumer or admin client checks the file at an
interval and passes a new password to the library, which uses it for the next authentication. In a running client, the
library accepts new values only for the user and the password of SASL (PLAIN, SCRAM). Keys, certificates and client
secrets are read only when a client is created.

Thread rule: a `Secret` is a plain value; a `Renewal` runs on the threads that use its client.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Final, Protocol

from postdate.kafka import limits

log = logging.getLogger(__name__)

MASK: Final = "***"


class Secret(str):
    """A text for the client library. Its repr and its form in an f-string are `***`. `str()` and `%s` still yield the
    text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)

    def __format__(self, format_spec: str) -> str:
        return format(MASK, format_spec)


class SecretFile(Secret):
    """A secret from a file. As a text, it is the content from the time when the configuration was read. It also has the
    path of the file and the content that `read` found last. Any thread may read it."""

    path: Path
    _latest: str

    def __new__(cls, text: str, path: Path) -> SecretFile:
        made = super().__new__(cls, text)
        made.path, made._latest = path, text
        return made

    def __getnewargs__(self) -> tuple[str, Path]:  # type: ignore[override]  # how pickle restores it
        return str.__str__(self), self.path

    def read(self) -> str:
        """Returns the present content of the file, without the line break at its end, or the content found last if the
        file cannot be read."""
        try:
            with self.path.open(encoding="utf-8") as file:
                self._latest = file.read(limits.SECRET_CHARS_MAX).rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            log.warning("%s cannot be read (%s); its former content stays in use", self.path, type(error).__name__)
        return self._latest


class SettableClient(Protocol):
    """Any client of the library."""

    def set_sasl_credentials(self, username: str, password: str) -> object:
        """Uses these credentials for the next authentication. Open connections stay."""


class Renewal:
    """Passes a changed password from the file to one client. `file` is None if there is no file to watch."""

    def __init__(self, client: SettableClient, username: str, file: SecretFile | None) -> None:
        self._client = client
        self._username = username
        self._file = file
        self._given = "" if file is None else file.read()
        self._check_at = time.monotonic() + limits.SECRET_CHECK_INTERVAL_S

    def follow(self) -> None:
        """Checks the file if the interval has passed; otherwise returns at once."""
        if self._file is None or time.monotonic() < self._check_at:
            return
        self._check_at = time.monotonic() + limits.SECRET_CHECK_INTERVAL_S
        password = self._file.read()
        if password != self._given:
            self._client.set_sasl_credentials(self._username, password)
            self._given = password
            log.info("the SASL password was read again from %s", self._file.path)
