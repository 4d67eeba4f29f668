"""The configuration of a Postdate process: one tree of frozen dataclasses, and what each option means.

Invariants: a `Config` from `config_load.load` has passed every check; it never changes; it can be pickled, so a parent
hands it to its workers as it is. The tree is also the documentation: `config_docs` prints it, and `config_load` derives
from it the keys of the TOML file and the names of the environment variables, so an option is declared once, here.

Thread rule: immutable, so any thread may read it.
Source of the idea: the frozen option classes of quix-streams' `kafka/configuration.py`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from postdate.sidecar.config import limits
from postdate.wire.dialects import DIALECTS
from postdate.wire.limits import HORIZON_MS_DEFAULT
from postdate.wire.rules import DEFAULT_LEVELS_MS
from postdate.wire.topics import DEFAULT_REQUESTS

CancelGate = Literal["takeover", "always", "off"]
Verdicts = Literal["none", "control", "all"]
Payloads = Literal["never", "allowed"]
LogLevel = Literal["debug", "info", "warning", "error"]

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Option:
    """What a person must know of one option: a sentence, and for numbers the inclusive bounds."""

    doc: str
    low: int | None = None
    high: int | None = None


Properties = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """How to reach Kafka, and librdkafka properties that are passed through."""

    bootstrap_servers: Annotated[str, Option("HOST:PORT of one or more brokers, comma separated. Required.")] = ""
    common: Annotated[Properties, Option("librdkafka properties for every client.")] = field(default_factory=dict)
    consumer: Annotated[Properties, Option("librdkafka properties for consumers; they win over common.")] = field(
        default_factory=dict
    )
    producer: Annotated[Properties, Option("librdkafka properties for producers; they win over common.")] = field(
        default_factory=dict
    )
    admin: Annotated[Properties, Option("librdkafka properties for the admin client; they win over common.")] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class RequestTopicConfig:
    """One request topic: who may be a target, how far ahead, which levels."""

    name: Annotated[str, Option("Name of the request topic.")] = DEFAULT_REQUESTS
    allow: Annotated[
        tuple[str, ...], Option("Patterns (* ? [...]) of the target topics that requests here may name.")
    ] = ("*",)
    levels_ms: Annotated[tuple[int, ...], Option("Delay of each postdate-level from level 1 on.", low=0)] = (
        DEFAULT_LEVELS_MS
    )
    horizon_ms: Annotated[
        int,
        Option(
            "The longest delay that is accepted; what is due later is refused as beyond-horizon.",
            low=SECOND_MS,
            high=limits.HORIZON_MS_MAX,
        ),
    ] = HORIZON_MS_DEFAULT
    store_after_ms: Annotated[
        int,
        Option(
            "Delays longer than this are kept in the store topic; at most a quarter of the request topic's retention. "
            "0: never, and the horizon is at most half of the retention.",
            low=0,
        ),
    ] = HOUR_MS
    cancel_gate: Annotated[
        CancelGate,
        Option("When a cancel written before the due time must win: while catching up (takeover), always, or never."),
    ] = "takeover"
    verdicts: Annotated[
        Verdicts, Option("Which requests are answered on the verdicts topic: none, controls, or all.")
    ] = "control"
    ended_window_ms: Annotated[
        int, Option("How long the end of an id is remembered, so that a control on it is too-late.", 0, DAY_MS)
    ] = HOUR_MS
    pending_max: Annotated[
        int, Option("Requests that a partition holds at most; beyond it they are limit-exceeded. 0: no limit.", low=0)
    ] = 0
    pending_size_bytes_max: Annotated[
        int, Option("Bytes that a partition holds at most; beyond it requests are limit-exceeded. 0: no limit.", low=0)
    ] = 0
    requests_per_second_max: Annotated[
        int, Option("Requests a second that a partition takes; beyond it they are limit-exceeded. 0: no limit.", low=0)
    ] = 0
    messages_per_second_max: Annotated[
        tuple[str, ...],
        Option(
            "Messages a second that a partition sends to a target, each as PATTERN=NUMBER; the first pattern that "
            "matches counts. What is due beyond it waits, in order, and holds up no other target. Empty: no limit."
        ),
    ] = ()
    dialects: Annotated[
        tuple[str, ...],
        Option(
            f"Other schedulers whose requests are taken as they are, besides Postdate's own: {', '.join(DIALECTS)}."
        ),
    ] = ()
    default_target: Annotated[
        str, Option("Target of the requests in a dialect that names none: chronos, rabbitmq, rocketmq.")
    ] = ""


@dataclass(frozen=True, slots=True)
class TopicsConfig:
    """Settings of Postdate's own topics, as `postdate topics create` makes and `postdate topics check` wants them."""

    partitions: Annotated[
        int, Option("Partitions of a new request topic: its number of shards.", low=1, high=limits.PARTITIONS_MAX)
    ] = 4
    replication_factor: Annotated[int, Option("Replicas of each new topic.", low=1, high=32)] = 3
    min_insync_replicas: Annotated[int, Option("Replicas that must hold a write before it counts.", low=1, high=32)] = 2
    retention_ms: Annotated[int, Option("How long a request topic keeps requests.", low=HOUR_MS)] = 7 * DAY_MS
    segment_ms: Annotated[int, Option("Age at which a segment of a request topic is closed.", low=MINUTE_MS)] = HOUR_MS
    dispatch_log_retention_ms: Annotated[
        int,
        Option(
            "How long the dispatch log keeps fates: longer than the request topic keeps requests (retention_ms).",
            low=2 * HOUR_MS,
        ),
    ] = 8 * DAY_MS


@dataclass(frozen=True, slots=True)
class DispatchConfig:
    """How much one transaction takes, how often there is one, and how long a refused entry is tried."""

    entries_max: Annotated[
        int, Option("Entries of one transaction at most.", low=1, high=limits.FATES_PER_TRANSACTION_MAX)
    ] = 10_000
    size_bytes_max: Annotated[
        int, Option("Bytes of the messages of one transaction at most.", low=1024, high=1024**3)
    ] = 16 * 1024**2
    pace_ms: Annotated[
        int,
        Option(
            "First pause between a commit and the next begin while little is due; it adapts. 0: none, ever.", 0, 1_000
        ),
    ] = 3
    transactions_per_second: Annotated[
        int, Option("Transactions a second of all shards of a process together.", low=1, high=10_000)
    ] = 400
    retry_budget_ms: Annotated[
        int, Option("How long Kafka may refuse or not acknowledge a message before it is dead-lettered.", 0, DAY_MS)
    ] = 30 * SECOND_MS


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """The local timer index."""

    tick_ms: Annotated[int, Option("Width of a slot of the wheel's fine ring.", low=10, high=1_000)] = 100
    sync_interval_ms: Annotated[
        int,
        Option("How often the timer log is synced; what a power cut loses is read again from Kafka.", 10, MINUTE_MS),
    ] = 200


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """Metrics, probes and what is pending, over HTTP."""

    host: Annotated[
        str, Option("Address to listen on. Beyond this machine the API needs the token; metrics and probes do not.")
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Option(
            "Port to listen on, 0: none. With several workers the first takes this one, each other the next.", 0, 65_535
        ),
    ] = 8_080
    advertise: Annotated[
        str,
        Option(
            "Host name or address under which other processes reach this one's port. Empty: the host; where that is "
            "0.0.0.0 or ::, the address by which this machine reaches Kafka."
        ),
    ] = ""
    names: Annotated[
        tuple[str, ...],
        Option(
            "Further host names by which clients reach the port, such as that of a Kubernetes service. It refuses "
            "requests under other names; it knows host, advertise, localhost, the machine's name, and every address."
        ),
    ] = ()
    token_file: Annotated[
        Path | None, Option("File with the bearer token that allows changes; unset: nobody may change anything.")
    ] = None
    tls_cert_file: Annotated[
        Path | None,
        Option(
            "PEM file with the certificate of the port and its chain. With it the port speaks TLS alone, and the other "
            "members are asked over https. A renewed file is used from the next connection on. Needs tls_key_file."
        ),
    ] = None
    tls_key_file: Annotated[Path | None, Option("PEM file with the private key of tls_cert_file, not encrypted.")] = (
        None
    )
    tls_ca_file: Annotated[
        Path | None,
        Option(
            "PEM file with the CAs that have signed the certificates of the other members; unset: those of the system."
        ),
    ] = None
    payloads: Annotated[
        Payloads, Option("Whether the API may show keys, headers and values of what is pending, to who asks for them.")
    ] = "never"

    @property
    def scheme(self) -> str:
        """The scheme by which the members of the group are asked, one for all of them."""
        return "http" if self.tls_cert_file is None and self.tls_ca_file is None else "https"


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a process is told. Build it with `config_load.load`; a bare `Config()` holds the defaults."""

    group_id: Annotated[str, Option("Consumer group; its members share the shards.")] = "postdate"
    group_instance_id: Annotated[
        str,
        Option(
            "Static member name, for hosts with stable names and volumes; empty: none. No two processes may have the "
            "same. Several workers add -0, -1 and so on."
        ),
    ] = ""
    instance: Annotated[
        str, Option("Name of this process in dispatch log and logs; empty: <host name>-<process id>.")
    ] = ""
    data_dir: Annotated[Path | None, Option("Directory of the timer indexes; unset: <XDG_STATE_HOME>/postdate.")] = None
    workers: Annotated[
        int, Option("Processes on this machine; each is a member of the group.", low=1, high=limits.WORKERS_MAX)
    ] = 1
    log_level: Annotated[LogLevel, Option("Least severity that is logged.")] = "info"
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    request_topics: Annotated[
        tuple[RequestTopicConfig, ...], Option("The request topics served, each a table [[request_topics]].")
    ] = (RequestTopicConfig(),)
    topics: TopicsConfig = field(default_factory=TopicsConfig)
    dispatch: DispatchConfig = field(default_factory=DispatchConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    http: HttpConfig = field(default_factory=HttpConfig)

    @property
    def instance_name(self) -> str:
        """The configured instance, else `<host name>-<process id>` of the process that asks."""
        return self.instance or f"{socket.gethostname()}-{os.getpid()}"

    @property
    def data_path(self) -> Path:
        """The configured data directory, else `postdate` in the XDG state directory; not created here."""
        if self.data_dir is not None:
            return self.data_dir
        state_home = os.environ.get("XDG_STATE_HOME", "")
        return (Path(state_home) if state_home else Path.home() / ".local" / "state") / "postdate"

    @property
    def request_topic_names(self) -> tuple[str, ...]:
        """The names of the request topics, in the order configured."""
        return tuple(topic.name for topic in self.request_topics)

    def request_topic(self, name: str) -> RequestTopicConfig:
        """The settings of the request topic `name`. Raises KeyError: it is not one of ours."""
        for topic in self.request_topics:
            if topic.name == name:
                return topic
        raise KeyError(name)
