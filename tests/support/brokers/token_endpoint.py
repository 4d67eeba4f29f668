"""An identity provider for tests: a token endpoint over TLS for one client, and its public key for the broker.

It supports what Kafka and librdkafka use: client credentials (RFC 6749, 4.4) and signed tokens (RS256, by openssl).
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

AUDIENCE = "kafka-of-the-test"
ISSUER = "https://issuer.of.the.test"
_KEY_ID = "key-1"
_LIFETIME_S = 300


@dataclass
class TokenEndpoint:
    """The address of an endpoint, its client, and the claims of its tokens.

    `audience`: the audience of the tokens issued from now on. `granted`: the number of issued tokens. `refused`: the
    number of requests with wrong credentials.
    """

    url: str
    jwks: str
    client_id: str
    client_secret: str
    audience: str = AUDIENCE
    granted: int = 0
    refused: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, is_granted: bool) -> None:
        with self._lock:
            self.granted += is_granted
            self.refused += not is_granted


@contextmanager
def token_endpoint(directory: Path, certificate: Path, client_id: str, client_secret: str) -> Iterator[TokenEndpoint]:
    """Yields a running endpoint. `certificate`: a PEM file with key and certificate for 127.0.0.1."""
    key = directory / "token.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    secure = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    plain = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    made = TokenEndpoint(
        f"https://127.0.0.1:{secure.server_port}/token",
        f"http://127.0.0.1:{plain.server_port}/jwks",
        client_id,
        client_secret,
    )
    secure.RequestHandlerClass = _handler(made, key)
    plain.RequestHandlerClass = _handler(made, key)
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in (secure, plain)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        for server in (secure, plain):
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()


def _handler(endpoint: TokenEndpoint, key: Path) -> type[BaseHTTPRequestHandler]:
    wanted = base64.b64encode(f"{endpoint.client_id}:{endpoint.client_secret}".encode()).decode()
    keys = {"keys": [_public_key(key)]}

    class TokenHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, keys)

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            is_granted = self.headers["Authorization"] == f"Basic {wanted}" and "client_credentials" in form
            endpoint.count(is_granted)
            if is_granted:
                token = _token(endpoint, key)
                self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": _LIFETIME_S})
            else:
                self._answer(401, {"error": "invalid_client", "error_description": "no such client, or another secret"})

        def _answer(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Suppresses the access log."""

    return TokenHandler


def _token(endpoint: TokenEndpoint, key: Path) -> str:
    now_s = int(time.time())
    header = {"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}
    claims = {
        "sub": endpoint.client_id,
        "iss": ISSUER,
        "aud": endpoint.audience,
        "iat": now_s,
        "exp": now_s + _LIFETIME_S,
    }
    signed = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
    command = ["openssl", "dgst", "-sha256", "-sign", str(key)]
    signature = subprocess.run(command, input=signed.encode(), check=True, capture_output=True).stdout
    return f"{signed}.{_encoded(signature)}"


def _public_key(key: Path) -> dict[str, str]:
    command = ["openssl", "rsa", "-in", str(key), "-noout", "-modulus"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    modulus = bytes.fromhex(output.strip().removeprefix("Modulus="))
    exponent = (65_537).to_bytes(3, "big")  # the default of openssl
    return {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": _KEY_ID, "n": _encoded(modulus), "e": _encoded(exponent)}


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
