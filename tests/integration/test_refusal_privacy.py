"""Goal: with http.payloads = "never" nothing of a refused request leaves the topics: no header value, key or body.

Method: a marker stands in every field of requests of which each deserves another reason, with one process that serves
them and logs all that it can. Then the test searches every path of HTTP, the log, and the status files. The reasons are
read from the dead letters, whose topic may hold it all.
"""

from __future__ import annotations

import base64
import json
import time

import pytest

from postdate.connectors.wire.headers import (
    ACTION,
    AT,
    DEAD_REASON,
    DELAY,
    GRACE,
    ID,
    LEVEL,
    ORIGIN,
    PARTITION,
    TOPIC,
    Headers,
)
from postdate.connectors.wire.reasons import Reason
from support.bed import Bed
from support.broker import unique_name
from support.http_steps import Client, free_port
from support.oracle import Sent

_TOKEN = "the-token-of-this-test"  # noqa: S105
_MARKER = b"card-4111-1111"
_LONG = b" of " + _MARKER + b" x" * 150
_SIZE_BYTES_MAX = 300_000

#: Reasons that take a broker with ACLs, without leaders or with its own plugin, or a producer of invalid names.
_WITHOUT_A_CAUSE_HERE = frozenset(
    {
        Reason.BAD_KEY,
        Reason.BAD_HEADERS,
        Reason.UNAUTHORIZED,
        Reason.TARGET_UNAVAILABLE,
        Reason.RECORD_REFUSED,
    }
)


def _refused(target: bytes, small: bytes) -> list[tuple[Headers, bytes]]:
    """Requests that are refused, with the marker in what is wrong, and in the value."""
    to, now, mark = (TOPIC, target), (DELAY, b"0"), _MARKER
    wrong: list[Headers] = [
        [now],
        [(TOPIC, b"no topic " + mark), now],
        [(TOPIC, b"\xff" + mark), now],
        [(TOPIC, mark), now],
        [(TOPIC, b"__" + mark), now],
        [to],
        [to, now, (LEVEL, mark)],
        [to, now, (AT, mark)],
        [to, (DELAY, mark)],
        [to, (AT, mark)],
        [to, (AT, mark + b"9" * 400)],
        [to, now, (GRACE, mark)],
        [to, (DELAY, b"5000d")],
        [to, (LEVEL, mark)],
        [to, now, (PARTITION, mark)],
        [to, now, (PARTITION, b"7")],
        [to, now, (ID, _LONG)],
        [to, now, (ID, b"\xff" + mark)],
        [(ACTION, b"cancel"), (ORIGIN, mark)],
        [(ACTION, b"cancel"), (ORIGIN, mark + b"/0/0")],
        [(ACTION, b"cancel")],
        [to, now, (ACTION, mark)],
        [(ACTION, b"cancel"), (ID, mark), to],
        [to, now, (ID, mark), (ID, mark)],
        [to, now, ("postdate-" + mark.decode(), mark)],
        [(TOPIC, small), now],
        [to, (AT, b"1000"), (GRACE, b"1h")],
        [(TOPIC, b"target-" + unique_name("nowhere").encode()), now],
    ]
    in_hours: Headers = [to, (DELAY, b"30m")]
    sent = [(headers, mark * 2_000) for headers in wrong]
    return [*sent, (in_hours, mark + b"x" * _SIZE_BYTES_MAX)]


def _hides(where: str, text: str) -> None:
    for form in (_MARKER, base64.b64encode(_MARKER)[:-4], _MARKER.hex().encode()):
        assert form.decode() not in text, f"{where} shows it: {text[max(text.index(form.decode()) - 200, 0) :][:400]}"


@pytest.mark.timeout(600)
def test_no_field_of_a_refused_request_leaves_the_topics(bed: Bed) -> None:
    requests, target, small = bed.new_requests(), bed.new_target(2), bed.new_target(max_message_bytes="20000")
    token_file = bed.directory / "token"
    token_file.write_text(_TOKEN)
    sidecar = bed.new_sidecar(
        dispatch={"retry_budget_ms": 500},
        allow=("target-*", "__*"),
        topic={"pending_size_bytes_max": _SIZE_BYTES_MAX, "verdicts": "all"},
    )
    sidecar.http = {"port": free_port(), "token_file": str(token_file)}
    sidecar.options = ("--log-level", "debug")
    sidecar.start()
    sidecar.wait_for_shards(1)
    client = Client(int(str(sidecar.http["port"])), _TOKEN)

    sender, sent = bed.sender(), []
    later: Headers = [(TOPIC, target.encode()), (AT, b"%d" % (int(time.time() * 1000) + 900_000)), ("card", _MARKER)]
    held = sender.send(requests, Sent(target, _MARKER, _MARKER, [*later, (ID, b"held")]), 0)
    refused = _refused(target.encode(), small.encode())
    for headers, value in refused:
        given: Headers = [("card", _MARKER), *headers]
        sent.append(sender.send(requests, Sent("", _MARKER, value, given), 0))
    sender.flush()
    bed.wait_for_ends(len(refused))

    reader = bed.reader(f"{requests}.dead-letters")
    reader.until(lambda: len(reader.records) >= len(refused), "each refused request has a dead letter")
    reasons = {seen.last(DEAD_REASON).decode() for seen in reader.records}
    reader.close()
    assert reasons == set(Reason) - _WITHOUT_A_CAUSE_HERE

    paths = ["/metrics", "/healthz", "/readyz", "/", "/api/v1/openapi.json", "/api/v1/shards"]
    paths += [f"/api/v1/pending{query}" for query in ("", "?limit=1000", "?payload=true", "?id=held", "/count")]
    for each in [*sent, held]:
        origin = each.origin.decode()
        paths += [f"/api/v1/requests/{origin}{query}" for query in ("", "?payload=true", "?scope=process")]
        paths.append(f"/api/v1/pending?origin={origin}")
    for path in paths:
        _hides(path, client.get(path).text)
    lives = [client.get(f"/api/v1/requests/{each.origin.decode()}").json for each in sent]
    assert {life["request"].get("refused") for life in lives} <= {*reasons, None}
    assert lives[1]["request"]["refused"] == Reason.BAD_TARGET
    assert client.get("/api/v1/pending").json["entries"][0]["id"] == "held"
    for action, body in (("cancel", {"origin": sent[1].origin.decode()}), ("hold", {"what": "intake"})):
        _hides(action, client.post(f"/api/v1/{action}", body).text)

    sidecar.stop()
    status = [path.read_text() for path in sidecar.data_dir.rglob("status.json")]
    assert json.loads(status[0])
    for text in status:
        _hides("status.json", text)
    assert len(sidecar.log_text().splitlines()) > 3
    _hides("the log", sidecar.log_text())
