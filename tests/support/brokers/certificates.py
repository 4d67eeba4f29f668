"""A certificate authority for tests, based on openssl. Certificates are valid for two days. All files are PEM."""

from __future__ import annotations

import subprocess
from pathlib import Path

KEY_PASSWORD = "swordfish-key"  # noqa: S105 - of keys that live as long as a test

#: The kind of every key: an elliptic curve, which openssl generates quickly.
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


class Authority:
    """A certificate authority. `ca`: the file with its certificate."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.ca = directory / "ca.crt"
        self._key = directory / "ca.key"
        self._directory = directory
        subject = ["-subj", "/CN=test-authority", "-days", "2", "-nodes", *_CURVE]
        _openssl("req", "-x509", *subject, "-keyout", self._key, "-out", self.ca)

    def issue(self, name: str, alternative: str) -> tuple[Path, Path]:
        """Returns the key and certificate for an alternative name, such as `DNS:client`. Each has a separate serial
        number."""
        key, request, certificate, extensions = (
            self._directory / f"{name}.{end}" for end in ("key", "csr", "crt", "ext")
        )
        extensions.write_text(f"subjectAltName={alternative}\n")
        _openssl("req", "-new", "-nodes", *_CURVE, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        signed = ("-CA", self.ca, "-CAkey", self._key, "-CAcreateserial", "-days", "2", "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, *signed, "-out", certificate)
        return key, certificate

    def encrypted(self, key: Path) -> Path:
        """Returns a copy of a key, encrypted with KEY_PASSWORD."""
        made = key.with_name(f"{key.stem}-encrypted.key")
        _openssl("pkcs8", "-topk8", "-in", key, "-out", made, "-passout", f"pass:{KEY_PASSWORD}")
        return made


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
