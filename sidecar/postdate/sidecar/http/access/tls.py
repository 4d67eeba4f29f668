"""TLS of the HTTP port. The files of its certificate may be replaced while the process runs.

Each new connection checks the files, which costs two system calls. If they have changed, a new context is made from
them, for this connection and all later ones; open connections keep the former context. If the new files are unusable,
for example because the key does not belong to the certificate, the former context stays in use, and one error is logged
for each change of the files. A context is never modified, because a failed modification would leave it inconsistent.

Thread rule: a `PortCertificate` belongs to the event loop of the server.
Source of the idea: certificates that cert-manager renews and the kubelet swaps by a symbolic link.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from postdate.sidecar.config.settings import HttpConfig
from postdate.sidecar.errors import ConfigError

log = logging.getLogger(__name__)

#: Inode, modification time and size of both files; None if one of them is missing.
_Stamp = tuple[tuple[int, int, int], ...] | None


class PortCertificate:
    """The certificate of the port, from its files."""

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        """Raises ConfigError if the files do not contain a certificate and its key."""
        self._files = (cert_file, key_file)
        self._loaded_stamp = self._stamp()
        self._context = self._load()

    @classmethod
    def of(cls, http: HttpConfig) -> PortCertificate | None:
        """Returns the certificate of a configuration; None if the port uses plain HTTP. Raises ConfigError."""
        if http.tls_cert_file is None or http.tls_key_file is None:
            return None
        return cls(http.tls_cert_file, http.tls_key_file)

    def context(self) -> ssl.SSLContext:
        """Returns the context for a new connection, from the present files, or from the last usable ones."""
        stamp = self._stamp()
        if stamp != self._loaded_stamp:
            self._loaded_stamp = stamp
            try:
                self._context = self._load()
                log.info("the HTTP port uses the new certificate in %s", self._files[0])
            except ConfigError as error:
                log.error("the new certificate cannot be used, and the HTTP port keeps the former one: %s", error)
        return self._context

    def _load(self) -> ssl.SSLContext:
        cert_file, key_file = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(cert_file, key_file, password="")  # never prompt for the password of a key
        except (OSError, ValueError) as error:
            raise ConfigError(f"http.tls_cert_file {cert_file}, http.tls_key_file {key_file}: {error}") from error
        return context

    def _stamp(self) -> _Stamp:
        try:
            stats = [file.stat() for file in self._files]
        except OSError:
            return None
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


def client_context(ca_file: Path | None) -> ssl.SSLContext:
    """Returns the context that verifies the certificate of another process, with these CAs or those of the system.
    Raises OSError."""
    return ssl.create_default_context(cafile=ca_file)


def require_tls(http: HttpConfig) -> None:
    """Raises ConfigError if the TLS settings of the port contradict each other, or if their files are unusable."""
    if http.tls_ca_file is None:
        PortCertificate.of(http)
        return
    if PortCertificate.of(http) is None:
        raise ConfigError("http.tls_ca_file is set, but http.tls_cert_file is not: the port itself would speak no TLS")
    try:
        client_context(http.tls_ca_file)
    except OSError as error:
        raise ConfigError(f"http.tls_ca_file {http.tls_ca_file}: {error}") from error
