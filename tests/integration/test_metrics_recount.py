"""Goal: metrics equal a recount from the topics, after deliveries, cancels, reschedules, long delays and dead letters.
Probes follow a start, a halt and a stop.

Method: real sidecars and a real broker. A reader that is independent of the sidecar counts the events on dispatch logs,
dead letters and request topics. /metrics must show the same numbers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from postdate.sidecar.states import State
from postdate.wire.dispatch_log import BEAT, DELIVERED, FATES
from postdate.wire.headers import ACTION, AT, DELAY, ID, TOPIC
from support.deployments.ports import free_port
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import QUICK_SESSION, Sidecar
from support.oracles.exactly_once import Outcome, Sent, gather
from support.waiting.timeouts import WAIT_TIMEOUT_S
from support.web.http_steps import Client, Samples, value_of

_FAR = b"30m"
_DAY_S = 86_400
_RETRY_BUDGET_MS = 2_000


def start(deployment: SidecarDeployment, shards: int) -> tuple[Sidecar, Client]:
    sidecar = deployment.new_sidecar(
        consumer={**QUICK_SESSION, "statistics.interval.ms": "500"}, dispatch={"retry_budget_ms": _RETRY_BUDGET_MS}
    )
    sidecar.http = {"port": free_port()}
    sidecar.start()
    sidecar.wait_for_shards(shards)
    return sidecar, Client(int(str(sidecar.http["port"])))


class _Traffic:
    """Requests of every kind, with their expected ends."""

    def __init__(self, deployment: SidecarDeployment, requests: str, target: str) -> None:
        self._sender, self._requests, self._target = deployment.sender(), requests, target.encode()
        self.delivered: list[Sent] = []
        self.dead: list[Sent] = []
        self.silent: list[Sent] = []
        self.held: list[Sent] = []
        self.outcomes: Counter[str] = Counter()

    def request(self, into: list[Sent], outcome: str, key: bytes, *headers: tuple[str, bytes]) -> None:
        self.outcomes[outcome] += 1
        into.append(self._sender.send(self._requests, Sent(self._target.decode(), key, b"v", list(headers))))

    def send(self) -> None:
        """Sends the requests. Messages precede their controls, and ids are keys, so that controls find them."""
        to, now_ms = (TOPIC, self._target), int(time.time() * 1000)
        for number in range(40):
            self.request(self.delivered, "schedule", b"%d" % number, to, (AT, b"%d" % (now_ms + number * 25)))
        for number in range(12):
            name = b"id-%d" % number
            into = self.silent if number < 8 else self.delivered
            self.request(into, "schedule", name, to, (ID, name), (DELAY, _FAR))
        for number in range(8):
            self.request(self.silent, "cancel", b"id-%d" % number, (ACTION, b"cancel"), (ID, b"id-%d" % number))
        for number in range(8, 12):
            name = b"id-%d" % number
            self.request(self.silent, "reschedule", name, (ACTION, b"reschedule"), (ID, name), (DELAY, b"300ms"))
        for number in range(5):
            self.request(self.dead, "refused", b"%d" % number, to)  # without a due time
        for number in range(3):
            self.request(self.dead, "schedule", b"%d" % number, (TOPIC, b"nowhere"), (DELAY, b"0"))
        for number in range(4):
            self.request(self.held, "schedule", b"%d" % number, to, (DELAY, _FAR))
        for number in range(2):
            self.request(self.held, "schedule", b"%d" % number, to, (DELAY, b"2h"))  # stored
        self._sender.flush()


def recounted(outcome: Outcome) -> dict[str, Counter[str]]:
    """Returns the metrics that follow from the topics, by name and label."""
    records = [record for _, record in outcome.log]
    return {
        "postdate_fates_total": Counter(fate.name for record in records for fate in record.fates),
        "postdate_dead_letters_total": outcome.reasons(),
        "postdate_transactions_total": Counter("committed" for record in records if record.kind in (FATES, BEAT)),
    }


def counted(samples: Samples, name: str, requests: str) -> Counter[str]:
    """Returns the values of a metric for a request topic by its other label, without zeros."""
    counts: Counter[str] = Counter()
    for (sample, labels), value in samples.items():
        if sample == name and ("topic", requests) in labels:
            (kind,) = (text for label, text in labels if label != "topic")
            counts[kind] += int(value)
    return +counts


def eventually(check: Callable[[], None]) -> None:
    """Repeats `check` until it passes. After a time-out, raises its last failure."""
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while True:
        try:
            check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def test_metrics_agree_with_a_recount_from_the_topics(deployment: SidecarDeployment) -> None:
    requests, target = deployment.new_requests(2), deployment.new_target()
    _, client = start(deployment, 2)
    traffic = _Traffic(deployment, requests, target)
    traffic.send()
    ended = len(traffic.delivered) + len(traffic.dead) + len(traffic.silent)
    deployment.wait_for_ends(ended)

    def agrees() -> None:
        outcome = gather(deployment.bootstrap, [requests], [target])
        samples = client.samples()
        for name, expected in recounted(outcome).items():
            assert counted(samples, name, requests) == expected, name
        assert counted(samples, "postdate_requests_total", requests) == traffic.outcomes
        assert value_of(samples, "postdate_pending_entries") == len(traffic.held)
        assert value_of(samples, "postdate_pending_by_horizon", topic=requests) == len(traffic.held)
        assert value_of(samples, "postdate_pending_by_horizon", horizon="1h") == len(traffic.held) - 2
        assert value_of(samples, "postdate_overdue_entries") == 0
        assert value_of(samples, "postdate_next_request_offset") == ended + len(traffic.held)
        _judge_lateness(samples, outcome, traffic)

    eventually(agrees)
    samples = client.samples()
    eventually(lambda: _assert_no_lag(client))
    eventually(lambda: _assert_broker(client))
    eventually(lambda: _assert_head_room(client))
    assert value_of(samples, "postdate_takeovers_total") == 2
    assert value_of(samples, "postdate_shard_state", state="RUNNING") == 2
    assert value_of(samples, "postdate_fates_total", fate="stored") == 2
    assert value_of(samples, "postdate_ready") == value_of(samples, "postdate_group_member") == 1
    assert abs(value_of(samples, "postdate_clock_skew_seconds", partition="0")) < 60  # one machine, one clock


def _assert_no_lag(client: Client) -> None:
    lags = [value for (name, _), value in client.samples().items() if name == "postdate_request_lag"]
    assert lags == [0, 0]


def _assert_head_room(client: Client) -> None:
    """Fails unless more than six of the seven days of retention are left for the oldest request that is not stored."""
    samples = client.samples()
    head_rooms = [value for (name, _), value in samples.items() if name == "postdate_low_water_head_room_seconds"]
    assert head_rooms
    assert all(6 * _DAY_S < head_room <= 7 * _DAY_S for head_room in head_rooms)


def _assert_broker(client: Client) -> None:
    samples = client.samples()
    assert value_of(samples, "postdate_broker_up") == 1  # the only broker is up
    assert value_of(samples, "postdate_broker_round_trip_seconds") > 0


def _judge_lateness(samples: Samples, outcome: Outcome, traffic: _Traffic) -> None:
    """Fails unless the lateness metric has one value per delivery, with a plausible sum.

    The sum is at least the lateness by the timestamps of the dispatch log. It is at most the time since the requests
    were appended.
    """
    now_ms = time.time() * 1000
    appended = {origin: ends[0][1] for origin, ends in outcome.fates.items() if ends[0][0] == DELIVERED}
    assert value_of(samples, "postdate_lateness_seconds_count") == len(appended) == len(traffic.delivered)
    due = {}
    for sent in traffic.delivered:
        due_ms = dict(sent.headers).get(AT)
        if due_ms is not None:
            due[sent.origin] = max(int(due_ms), sent.appended_ms)
    least_ms = sum(appended[origin] - due_ms for origin, due_ms in due.items())
    total_ms = value_of(samples, "postdate_lateness_seconds_sum") * 1000
    assert least_ms <= total_ms <= sum(now_ms - sent.appended_ms for sent in traffic.delivered)


def test_probes_follow_a_start_a_halt_and_a_stop(deployment: SidecarDeployment) -> None:
    """A foreign record in the dispatch log halts only its shard. The process continues; `/readyz` notes the halt."""
    requests = deployment.new_requests(2)
    stranger = deployment.sender()
    stranger.send(f"{requests}.dispatch-log", Sent("", None, b"not Postdate's", []), 1)
    stranger.flush()
    sidecar, client = start(deployment, 1)

    def halted() -> None:
        answer = client.get("/readyz")
        assert (answer.status, answer.text.splitlines()[0]) == (200, "ready")
        assert f"note: {requests}/1 is HALTED: foreign-record: " in answer.text
        samples = client.samples()
        assert value_of(samples, "postdate_shard_state", state=State.HALTED, partition="1") == 1
        assert value_of(samples, "postdate_shard_state", state=State.RUNNING, partition="0") == 1

    eventually(halted)
    assert client.get("/healthz").text == "alive\n"
    (unable,) = client.get("/api/v1/pending").json["not_asked"]
    assert (unable["partition"], unable["state"]) == (1, "HALTED")
    assert sidecar.stop() == 0
    assert not client.listens()
