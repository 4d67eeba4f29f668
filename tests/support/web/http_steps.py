"""An HTTP client for tests, which returns status and body of a request, and the samples of a page of metrics."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from support.waiting.timeouts import WAIT_TIMEOUT_S

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass(frozen=True)
class HttpAnswer:
    """The response of a server."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Client:
    """A client of a port of this machine, with TLS if there is a `ca`."""

    port: int
    token: str = ""
    ca: Path | None = None

    def get(self, path: str, **headers: str) -> HttpAnswer:
        return self.ask("GET", path, None, headers)

    def post(self, path: str, body: object, **headers: str) -> HttpAnswer:
        return self.ask("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)

    def ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> HttpAnswer:
        """Sends a request, and returns the response. Raises OSError if no process listens."""
        connection = self.connection()
        given = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            connection.request(method, path, body, {**given, **headers})
            answer = connection.getresponse()
            return HttpAnswer(answer.status, answer.read().decode(), dict(answer.getheaders()))
        finally:
            connection.close()

    def connection(self) -> HTTPConnection:
        """Returns a connection that is not open yet."""
        if self.ca is None:
            return HTTPConnection("127.0.0.1", self.port, timeout=WAIT_TIMEOUT_S)
        context = ssl.create_default_context(cafile=self.ca)
        return HTTPSConnection("127.0.0.1", self.port, timeout=WAIT_TIMEOUT_S, context=context)

    def listens(self) -> bool:
        try:
            self.get("/healthz")
        except OSError:
            return False
        return True

    def samples(self) -> Samples:
        """Returns every sample of /metrics by name and labels."""
        answer = self.get("/metrics")
        assert answer.status == 200, answer.text
        families = text_string_to_metric_families(answer.text)
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }


def value_of(samples: Samples, name: str, **labels: str) -> float:
    """Returns the sum of the samples with this name and these labels; 0 if there are none."""
    wanted = set(labels.items())
    return sum(value for (sample, given), value in samples.items() if sample == name and wanted <= given)
