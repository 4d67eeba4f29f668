"""Goal: a signature permits one request, at one process, for a short time, and a change only once.

Method: signatures are checked unchanged and with one part changed. Then a real server receives signed requests.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from postdate.sidecar.errors import ConfigError
from postdate.sidecar.http.access import signing
from postdate.sidecar.http.access.signing import SCHEME, BadSignature, NoncesFull, Signatures, is_signed, signed
from postdate.sidecar.http.limits import SIGNATURE_MS_MAX
from postdate.sidecar.http.queries.api_client import Api
from support.web.http_server import TOKEN, HttpServerUnderTest
from support.web.http_steps import Client, HttpAnswer

ADDRESS = "10.1.2.3:8080"
TARGET = "/api/v1/hold?scope=process"
BODY = b'{"what": "intake"}'


class _Clock:
    """The clock of the process that checks a signature. It is `ahead_ms` ahead of the clock of the signing process."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return signing.wall_ms() + self.ahead_ms


def sign(method: str = "POST") -> str:
    return signed(TOKEN, method, ADDRESS, TARGET, BODY)


def test_a_signature_is_valid_for_its_request_and_does_not_contain_the_token() -> None:
    signatures = Signatures(ADDRESS)
    header = sign()
    assert is_signed(header)
    assert TOKEN not in header
    signatures.check(TOKEN.encode(), header, "POST", TARGET, BODY)


@pytest.mark.parametrize(
    ("token", "address", "method", "target", "body"),
    [
        (TOKEN + "x", ADDRESS, "POST", TARGET, BODY),
        (TOKEN, "10.1.2.4:8080", "POST", TARGET, BODY),
        (TOKEN, ADDRESS, "GET", TARGET, BODY),
        (TOKEN, ADDRESS, "POST", "/api/v1/release?scope=process", BODY),
        (TOKEN, ADDRESS, "POST", "/api/v1/hold", BODY),
        (TOKEN, ADDRESS, "POST", TARGET, b'{"what": "delivery"}'),
    ],
)
def test_a_signature_is_invalid_for_every_other_request(
    token: str, address: str, method: str, target: str, body: bytes
) -> None:
    with pytest.raises(BadSignature, match="was not made with the token"):
        Signatures(address).check(token.encode(), sign(), method, target, body)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_no_part_of_a_signature_can_be_changed(part: int) -> None:
    parts = sign().partition(" ")[2].split(":")
    parts[part] = parts[part][:-1] + ("1" if parts[part][-1] == "0" else "0")
    with pytest.raises(BadSignature, match="was not made with the token"):
        Signatures(ADDRESS).check(TOKEN.encode(), f"{SCHEME} {':'.join(parts)}", "POST", TARGET, BODY)


@pytest.mark.parametrize("text", ["", "1", "1:2:3", "a" * 100_000, "1" * 20 + ":" + "0" * 32 + ":" + "0" * 64, "é:ü:ö"])
def test_a_malformed_signature_is_refused(text: str) -> None:
    with pytest.raises(BadSignature, match="does not have the form"):
        Signatures(ADDRESS).check(TOKEN.encode(), f"{SCHEME} {text}", "POST", TARGET, BODY)


@pytest.mark.parametrize("sign_of_time", [-1, 1])
def test_a_signature_is_valid_for_a_short_time(sign_of_time: int) -> None:
    clock = _Clock()
    signatures = Signatures(ADDRESS, clock)
    header = sign("GET")
    clock.ahead_ms = sign_of_time * (SIGNATURE_MS_MAX - 5_000)
    for _ in range(3):  # a signed query is accepted repeatedly
        signatures.check(TOKEN.encode(), header, "GET", TARGET, BODY)
    clock.ahead_ms = sign_of_time * (SIGNATURE_MS_MAX + 5_000)
    with pytest.raises(BadSignature, match="do the clocks of the machines agree"):
        signatures.check(TOKEN.encode(), header, "GET", TARGET, BODY)


def test_a_signed_change_is_accepted_once_while_its_signature_is_valid() -> None:
    clock = _Clock()
    signatures = Signatures(ADDRESS, clock)
    clock.ahead_ms = -SIGNATURE_MS_MAX + 5_000  # the clock of the signer is ahead by nearly the allowed difference
    header = sign()
    signatures.check(TOKEN.encode(), header, "POST", TARGET, BODY)
    clock.ahead_ms = SIGNATURE_MS_MAX - 5_000
    with pytest.raises(BadSignature, match="already accepted"):
        signatures.check(TOKEN.encode(), header, "POST", TARGET, BODY)
    clock.ahead_ms = SIGNATURE_MS_MAX + 5_000
    with pytest.raises(BadSignature, match="clocks"):
        signatures.check(TOKEN.encode(), header, "POST", TARGET, BODY)


def test_a_restarted_process_accepts_no_change_that_was_signed_before_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    header, query = sign(), sign("GET")
    Signatures(ADDRESS, _Clock()).check(TOKEN.encode(), query, "GET", TARGET, BODY)
    clock = _Clock()
    clock.ahead_ms = 1
    signatures = Signatures(ADDRESS, clock)
    with pytest.raises(BadSignature, match="signed before this process started"):
        signatures.check(TOKEN.encode(), header, "POST", TARGET, BODY)
    later_s = time.monotonic() + 2 * SIGNATURE_MS_MAX / 1_000
    monkeypatch.setattr(time, "monotonic", lambda: later_s)  # the clock was set back after the start
    signatures.check(TOKEN.encode(), sign(), "POST", TARGET, BODY)


def test_the_nonces_remembered_are_bounded_and_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "NONCES_MAX", 3)
    clock = _Clock()
    signatures = Signatures(ADDRESS, clock)
    for _ in range(3):
        signatures.check(TOKEN.encode(), sign(), "POST", TARGET, BODY)
    with pytest.raises(NoncesFull):
        signatures.check(TOKEN.encode(), sign(), "POST", TARGET, BODY)
    later_ms = signing.wall_ms() + 2 * SIGNATURE_MS_MAX + 1_000
    monkeypatch.setattr(signing, "wall_ms", lambda: later_ms)
    signatures.check(TOKEN.encode(), sign(), "POST", TARGET, BODY)


# ---- over the network ------------------------------------------------------------------------------------------------


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Yields a client of a process that listens on all addresses and advertises the loopback address."""
    path = tmp_path / "token"
    path.write_text(TOKEN)
    with ExitStack() as stack:
        yield Client(HttpServerUnderTest(stack).serve(path, host="0.0.0.0", advertise="127.0.0.1").port)  # noqa: S104


def send(client: Client, method: str, target: str, body: bytes | None, authorization: str) -> HttpAnswer:
    return client.ask(method, target, body, {"Authorization": authorization})


def test_a_process_accepts_signed_requests_and_bearer_tokens(client: Client) -> None:
    url = f"http://127.0.0.1:{client.port}"
    for api in (Api(url, TOKEN), Api(url, TOKEN, signs=True)):
        assert api.get("/api/v1/pending", [("scope", "process"), ("id", "a b%/?&é")])["entries"] == []
    for api in (Api(url, TOKEN[:-1] + "x"), Api(url, TOKEN[:-1] + "x", signs=True), Api(url)):
        with pytest.raises(ConfigError, match="token"):
            api.get("/api/v1/pending/count")


def test_a_captured_signed_change_cannot_be_replayed_altered_or_redirected(client: Client) -> None:
    own = f"127.0.0.1:{client.port}"
    target = "/api/v1/cancel?scope=process"
    header = signed(TOKEN, "POST", own, target, b"[]")
    first = send(client, "POST", target, b"[]", header)
    assert (first.status, "JSON object" in first.text) == (400, True), "it is authorized, and its body is invalid"
    again = send(client, "POST", target, b"[]", header)
    assert (again.status, "already accepted" in again.text) == (401, True)
    elsewhere = signed(TOKEN, "POST", f"{socket.gethostname()}:{client.port}", target, b"[]")
    for body, credentials in ((b"{}", signed(TOKEN, "POST", own, target, b"[]")), (b"[]", elsewhere)):
        assert send(client, "POST", target, body, credentials).status == 401
    assert send(client, "POST", target, b"x" * 20_000, header).status == 413
