"""Goal: the answers of several processes are merged into one. The pages contain every entry once and in order, counts
are sums, and shards without an answer are named.

Method: a simulated process has a sorted list of entries, and cuts it into pages of random lengths. Like those of a real
process, pages may be short or empty. The merged pages are compared with the sorted list of all entries. Each test
supplies the members of the group.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from postdate.kafka.interface import GroupMember, Partition
from postdate.sidecar.config.settings import HttpConfig
from postdate.sidecar.errors import ConfigError, TransientError
from postdate.sidecar.http.access.signing import Signatures
from postdate.sidecar.http.queries import deployment
from postdate.sidecar.http.queries.api_client import NotKnown
from postdate.sidecar.http.queries.deployment import Deployment, peers_of
from postdate.sidecar.http.queries.merging import merged_count, merged_named, merged_page
from postdate.sidecar.http.queries.pending import PageCursor
from postdate.wheel.keys import entry_key
from postdate.wire.origins import format_origin
from support.waiting.timeouts import WAIT_TIMEOUT_S

TOPIC = "requests"
PLAIN = HttpConfig()
Entry = dict[str, Any]


def entry(due_ms: int, partition: int, offset: int) -> Entry:
    origin = format_origin(TOPIC, partition, offset).decode()
    return {"due_ms": due_ms, "origin": origin, "state": "waiting", "target": "orders"}


def place(entry: Entry) -> PageCursor:
    _, index, offset = entry["origin"].split("/")
    return PageCursor(entry_key(entry["due_ms"], int(offset)), Partition(TOPIC, int(index)))


class _Process:
    """Answers with its entries as a process does, in pages of random lengths."""

    def __init__(self, entries: list[Entry], chance: random.Random) -> None:
        self.entries = sorted(entries, key=place)
        self._chance = chance

    def page(self, cursor: str | None, limit: int) -> Entry:
        after = PageCursor.decode(cursor) if cursor is not None else None
        rest = [entry for entry in self.entries if after is None or place(entry) > after]
        examined = rest[: self._chance.randrange(1, 8)]
        shown = examined[:limit]
        more = len(rest) > len(shown)
        last = shown if len(shown) == limit else examined
        return {"entries": shown, "cursor": place(last[-1]).encode() if more and last else None, "shards": []}


@pytest.mark.parametrize("seed", range(20))
def test_pages_of_all_hold_every_entry_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    entries = [entry(10_000 + chance.randrange(9), part, offset) for part in range(4) for offset in range(15)]
    processes = [_Process([each for each in entries if int(each["origin"][9]) % 3 == n], chance) for n in range(3)]
    seen: list[Entry] = []
    cursor: str | None = None
    for _ in range(len(entries) + 1):
        merged = merged_page([process.page(cursor, 5) for process in processes], 5)
        assert len(merged["entries"]) <= 5
        seen += merged["entries"]
        cursor = merged["cursor"]
        if cursor is None:
            break
    assert seen == sorted(entries, key=place)


def test_a_paused_schedule_comes_last_and_once() -> None:
    """A paused schedule delivers nothing before it is resumed."""
    paused = {**entry(5, 1, 7), "chosen_ms": None, "paused": True}
    page = {"entries": [entry(9, 0, 1), paused], "cursor": None, "shards": []}
    assert merged_page([page, page], 10)["entries"] == page["entries"]
    assert merged_named([page, page])["entries"] == page["entries"]


def test_a_shard_for_which_two_processes_answer_is_shown_and_counted_once() -> None:
    page = {"entries": [entry(5, 0, 1)], "cursor": None, "shards": []}
    assert merged_page([page, page], 10)["entries"] == page["entries"]
    shard = {"topic": TOPIC, "partition": 0, "count": 3, "exact": True, "parked": 1}
    other = {"topic": TOPIC, "partition": 1, "count": 4, "exact": False, "parked": 0}
    merged = merged_count([{"shards": [shard]}, {"shards": [shard, other]}])
    assert (merged["count"], merged["exact"], merged["parked"]) == (7, False, 1)


def test_a_shard_that_missed_one_page_is_named_for_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"topic": TOPIC, "partition": 1, "state": "UNKNOWN", "why": "away"}
    cursor = place(entry(5, 0, 1)).encode()
    pages: Iterator[Entry] = iter(
        [{"entries": [entry(5, 0, 1)], "cursor": cursor}, {"entries": [entry(6, 0, 2)], "cursor": None}]
    )
    others = Deployment([], frozenset())

    def page(query: object) -> Entry:
        answer = next(pages)
        others.not_asked = [missing] if answer["cursor"] else []
        return answer

    monkeypatch.setattr(others, "page", page)
    assert [each["due_ms"] for each in others.entries([], 10)] == [5, 6]
    assert others.not_asked == [missing]


# ---- over the network ------------------------------------------------------------------------------------------------


class _Peer:
    """A process over HTTP that gives one answer to every request, and records the requests."""

    def __init__(self, status: int, answer: object) -> None:
        self.requests: list[tuple[str, list[tuple[str, str]], str | None]] = []
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                peer.requests.append((parts.path, parse_qsl(parts.query), self.headers.get("Authorization")))
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Logs nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def serving(*peers: _Peer) -> Iterator[None]:
    with ExitStack() as stack:
        for peer in peers:
            thread = Thread(target=peer.server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(thread.join)
            stack.callback(peer.server.server_close)
            stack.callback(peer.server.shutdown)
        yield


def member(address: str, *partitions: int) -> GroupMember:
    return GroupMember("", "", f"postdate@{address}", "/here", tuple(Partition(TOPIC, index) for index in partitions))


def counted(*partitions: int) -> Entry:
    shards = [{"topic": TOPIC, "partition": index, "count": 2, "exact": True, "parked": 0} for index in partitions]
    return {"count": 2 * len(shards), "exact": True, "shards": shards, "not_asked": []}


EXPECTED = frozenset(Partition(TOPIC, index) for index in range(5))


def test_each_process_gets_a_signed_query_and_missing_shards_are_named() -> None:
    well, ill, own = _Peer(200, counted(0)), _Peer(503, {"error": "a shard gave no answer"}), _Peer(200, counted(4))
    members = [member(well.address, 0), member(ill.address, 1), member("", 2), member("127.0.0.1:1", 3)]
    with serving(well, ill, own):
        others = Deployment(peers_of([*members, member(own.address, 4)], "secret", PLAIN, own.address), EXPECTED)
        answer = others.count([("topic", TOPIC)], [counted(4)])
    assert answer["count"] == 4
    assert own.requests == []
    ((path, query, authorization),) = well.requests
    assert (path, query) == ("/api/v1/pending/count", [("topic", TOPIC), ("scope", "process")])
    assert authorization is not None
    assert "secret" not in authorization
    target = f"{path}?topic={TOPIC}&scope=process"
    Signatures(well.address).check(b"secret", authorization, "GET", target, b"")
    reasons = {item["partition"]: item["why"] for item in answer["not_asked"]}
    assert sorted(reasons) == [1, 2, 3]
    assert f"{ill.address} holds it" in reasons[1]
    assert "a shard gave no answer" in reasons[1]
    assert "serves no port" in reasons[2]
    assert "no answer from http://127.0.0.1:1" in reasons[3]


def test_of_two_members_with_one_address_only_one_counts_as_queried() -> None:
    twins = [member("127.0.0.1:8080", 0), member("127.0.0.1:8080", 1)]
    answer = Deployment(peers_of(twins, "", PLAIN, "127.0.0.1:8080"), frozenset()).count([], [counted(0)])
    (missing,) = answer["not_asked"]
    assert (missing["partition"], missing["state"]) == (1, "UNKNOWN")
    assert "another member of the group advertises the same address (http.advertise)" in missing["why"]


def test_an_unassigned_shard_is_named_unless_the_query_excludes_it() -> None:
    others = Deployment([], EXPECTED)
    assert [item["partition"] for item in others.count([], [counted(0, 1, 2)])["not_asked"]] == [3, 4]
    assert others.count([("partition", "3")], [counted()])["not_asked"][0]["state"] == "UNASSIGNED"
    assert others.count([("topic", "another")], [counted()])["not_asked"] == []


def test_if_no_process_answers_the_query_fails() -> None:
    ill = _Peer(401, {"error": "a bearer token is needed"})
    with serving(ill), pytest.raises(ConfigError, match="bearer token"):
        Deployment(peers_of([member(ill.address, 0)], "", PLAIN), EXPECTED).page([])


def test_the_history_of_a_request_comes_from_the_process_that_knows_it() -> None:
    knows, ignorant = _Peer(200, {"state": "waiting"}), _Peer(404, {"error": "not held by this process"})
    with serving(knows, ignorant):
        moved = Deployment(peers_of([member(ignorant.address, 0), member(knows.address, 1)], "", PLAIN), EXPECTED)
        assert moved.history(f"{TOPIC}/0/7", []) == {"state": "waiting"}
        assert len(ignorant.requests) == 1
        alone = Deployment(peers_of([member(ignorant.address, 0)], "", PLAIN), EXPECTED)
        with pytest.raises(NotKnown):
            alone.history(f"{TOPIC}/0/7", [])
        gone = Deployment(peers_of([member(ignorant.address, 0), member("127.0.0.1:1", 1)], "", PLAIN), EXPECTED)
        with pytest.raises(TransientError, match="not all processes have answered"):
            gone.history(f"{TOPIC}/0/7", [])
        mute = Deployment(peers_of([member(ignorant.address, 0), member("", 1)], "", PLAIN), EXPECTED)
        for part, why in ((1, "holds it and serves no port"), (2, "no other member of the group holds it now")):
            with pytest.raises(TransientError, match=f"was not found, but not all processes have answered: .*{why}"):
                mute.history(f"{TOPIC}/{part}/7", [])


def test_a_member_of_an_earlier_version_appears_in_not_asked() -> None:
    earlier = _Peer(401, {"error": "a bearer token is needed"})
    with serving(earlier):
        peers = peers_of([member(earlier.address, 1)], "secret", PLAIN)
        answer = Deployment(peers, frozenset()).count([], [counted(0)])
    (missing,) = answer["not_asked"]
    assert missing["partition"] == 1
    assert "an earlier version, which accepts no signed requests" in missing["why"]


@pytest.mark.parametrize(
    "address", ["h:99999", "h:0", "[:::]:80", "[1.2.3.4]:80", "a" * 64 + ":80", "a" * 300 + ":80", "..:80", "-:1"]
)
def test_a_member_with_an_invalid_address_costs_no_time(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        deployment, "MERGED_TIMEOUT_S", WAIT_TIMEOUT_S
    )  # long enough that a query that waits for the member fails below
    well = _Peer(200, counted(0))
    began = time.monotonic()
    with serving(well):
        members = [member(address, 1), member(well.address, 0)]
        answer = Deployment(peers_of(members, "secret", PLAIN), frozenset()).count([])
    assert time.monotonic() - began < WAIT_TIMEOUT_S / 2
    assert answer["count"] == 2
    if GroupMember("", "", f"x@{address}", "", ()).address:
        assert [item["partition"] for item in answer["not_asked"]] == [1]


_SHARD = {"topic": TOPIC, "partition": 1, "count": 1, "exact": True, "parked": 0}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        {"shards": 5, "not_asked": []},
        {"shards": [5], "not_asked": []},
        {"shards": [_SHARD | {"partition": "1"}], "not_asked": []},
        {"shards": [_SHARD | {"topic": [1]}], "not_asked": []},
        {"shards": [_SHARD | {"count": "x"}], "not_asked": []},
        {"shards": [_SHARD], "not_asked": [{"topic": 5}]},
        {"entries": [5], "cursor": None, "shards": [], "not_asked": [], "at_ms": []},
        {"entries": [entry(1, 1, 1) | {"due_ms": 2**70}], "cursor": None, "shards": [], "not_asked": [], "at_ms": "x"},
        {"entries": [entry(1, 1, 1) | {"origin": "x"}], "cursor": None, "shards": [], "not_asked": [], "at_ms": None},
        {"entries": [entry(1, 1, 1) | {"origin": 5}], "cursor": None, "shards": [], "not_asked": [], "at_ms": {}},
        {"entries": [], "cursor": "zzz", "shards": [], "not_asked": [], "at_ms": "5x"},
    ],
)
def test_an_answer_in_another_format_counts_as_missing(answer: object) -> None:
    ill = _Peer(200, answer)
    own = counted(0) | {"entries": [entry(5, 0, 1)], "cursor": None, "at_ms": 5}
    with serving(ill):
        others = Deployment(peers_of([member(ill.address, 1)], "secret", PLAIN), frozenset())
        for merged in (others.count([], [own]), others.page([], [own]), others.overview([own])):
            assert merged["shards"][0]["partition"] == 0
        assert own["entries"] == others.page([], [own])["entries"]


def test_a_peer_that_sends_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "PEER_TIMEOUT_S", 0.3)
    test_ended = Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not test_ended.wait(0.05):
                connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=drip, args=(server,))
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        others = Deployment(peers_of([member(address, 1)], "secret", PLAIN), frozenset())
        assert [item["partition"] for item in others.count([], [counted(0)])["not_asked"]] == [1]
        thread.join(WAIT_TIMEOUT_S)
        is_cut = not thread.is_alive()
        test_ended.set()
    assert is_cut
