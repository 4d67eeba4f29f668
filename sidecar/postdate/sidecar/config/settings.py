"""The configuration of a Postdate process: one tree of frozen dataclasses, with the documentation of each option.

Invariants: a `Config` from `loader.load` has passed every check of the loader; it never changes; it can be pickled. The
tree is also the documentation: `cli.config_docs` prints it, and `schema` derives the keys of the TOML file and the
names of the environment variables from it. So each option is declared once, here.

Thread rule: immutable, so any thread may read it. Source of the idea: the frozen option classes of quix-streams'
`kafka/configuration.py`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from postdate.kafka.settings import GroupProtocol
from postdate.sidecar.config import limits
from postdate.wire.dialects.table import DIALECTS
from postdate.wire.limits import FORMAT_VERSION_MAX, HORIZON_MS_DEFAULT
from postdate.wire.requests.rules import DEFAULT_LEVELS_MS
from postdate.wire.topics import DEFAULT_REQUESTS

CancelGateMode = Literal["takeover", "always", "off"]
Verdicts = Literal["none", "control", "all"]
Payloads = Literal["never", "allowed"]
TraceMode = Literal["off", "opentelemetry"]
LogLevel = Literal["debug", "info", "warning", "error"]

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Option:
    """The documentation of one option: a sentence, and the inclusive bounds of a number."""

    doc: str
    low: int | None = None
    high: int | None = None


Properties = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """The address of Kafka, and librdkafka properties of each kind of client."""

    bootstrap_servers: Annotated[str, Option("HOST:PORT of one or more brokers, comma separated. Required.")] = ""
    common: Annotated[Properties, Option("librdkafka properties of every client.")] = field(default_factory=dict)
    consumer: Annotated[Properties, Option("librdkafka properties of consumers; they override common.")] = field(
        default_factory=dict
    )
    producer: Annotated[Properties, Option("librdkafka properties of producers; they override common.")] = field(
        default_factory=dict
    )
    admin: Annotated[Properties, Option("librdkafka properties of the admin client; they override common.")] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class RequestTopicConfig:
    """The settings of one request topic."""

    name: Annotated[str, Option("Name of the request topic.")] = DEFAULT_REQUESTS
    allow: Annotated[
        tuple[str, ...], Option("Patterns (* ? [...]) of the topics that requests may name as target.")
    ] = ("*",)
    levels_ms: Annotated[tuple[int, ...], Option("Delay of each postdate-level, from level 1 on.", low=0)] = (
        DEFAULT_LEVELS_MS
    )
    horizon_ms: Annotated[
        int,
        Option(
            "The longest accepted delay; a request with a longer one is refused as beyond-horizon.",
            low=SECOND_MS,
            high=limits.HORIZON_MS_MAX,
        ),
    ] = HORIZON_MS_DEFAULT
    store_after_ms: Annotated[
        int,
        Option(
            "Requests with a longer delay are copied to the store topic; at most a quarter of the request topic's "
            "retention. 0: none are copied, and the horizon is at most half of the retention.",
            low=0,
        ),
    ] = HOUR_MS
    cancel_gate: Annotated[
        CancelGateMode,
        Option(
            "When a shard holds messages back until it has read the cancels written before their due time: while it "
            "catches up after a takeover (takeover), always, or never (off)."
        ),
    ] = "takeover"
    verdicts: Annotated[
        Verdicts, Option("Which requests get a verdict on the verdicts topic: none, controls and replacements, or all.")
    ] = "control"
    ended_window_ms: Annotated[
        int,
        Option(
            "How long completed ids are remembered. A later control gets not-found instead of too-late, and a later "
            "request with postdate-if-ended is accepted.",
            0,
            DAY_MS,
        ),
    ] = HOUR_MS
    pending_max: Annotated[
        int,
        Option("Most pending requests of a partition; further ones are refused as limit-exceeded. 0: no limit.", low=0),
    ] = 0
    pending_size_bytes_max: Annotated[
        int,
        Option(
            "Most pending bytes of a partition; further requests are refused as limit-exceeded. 0: no limit.", low=0
        ),
    ] = 0
    requests_per_second_max: Annotated[
        int,
        Option(
            "Most requests per second of a partition; further ones are refused as limit-exceeded. 0: no limit.", low=0
        ),
    ] = 0
    messages_per_second_max: Annotated[
        tuple[str, ...],
        Option(
            "Most messages per second from a partition to a target, each as PATTERN=NUMBER; the first matching pattern "
            "applies. Further due messages wait, in order, and delay no other target. Empty: no limit."
        ),
    ] = ()
    retry_policies: Annotated[
        tuple[str, ...],
        Option(
            "Named policies for postdate-retry, each as NAME: base=1s, factor=2, max=1h, attempts=12, jitter=20%. "
            "Needs format_version = 2. A changed policy applies to returns that are sent after the change."
        ),
    ] = ()
    dialects: Annotated[
        tuple[str, ...],
        Option(f"Other schedulers whose request headers are accepted beside Postdate's: {', '.join(DIALECTS)}."),
    ] = ()
    default_target: Annotated[
        str, Option("Target of requests in a dialect that names no target: chronos, rabbitmq, rocketmq, spring.")
    ] = ""


@dataclass(frozen=True, slots=True)
class TopicsConfig:
    """Settings of the topics that `postdate topics create` creates and `postdate topics check` checks."""

    partitions: Annotated[
        int, Option("Partitions of a new request topic, one shard each.", low=1, high=limits.PARTITIONS_MAX)
    ] = 4
    replication_factor: Annotated[int, Option("Replicas of each new topic.", low=1, high=32)] = 3
    min_insync_replicas: Annotated[
        int, Option("Replicas that must have a write before it is acknowledged.", low=1, high=32)
    ] = 2
    retention_ms: Annotated[int, Option("How long a request topic keeps requests.", low=HOUR_MS)] = 7 * DAY_MS
    segment_ms: Annotated[int, Option("Age at which a segment of a request topic is closed.", low=MINUTE_MS)] = HOUR_MS
    dispatch_log_retention_ms: Annotated[
        int,
        Option(
            "How long the dispatch log keeps fates; must be longer than retention_ms of the request topic.",
            low=2 * HOUR_MS,
        ),
    ] = 8 * DAY_MS


@dataclass(frozen=True, slots=True)
class DispatchConfig:
    """The size and rate of transactions, and the retry of refused messages."""

    entries_max: Annotated[
        int, Option("Most entries of one transaction.", low=1, high=limits.FATES_PER_TRANSACTION_MAX)
    ] = 10_000
    size_bytes_max: Annotated[int, Option("Most bytes of messages in one transaction.", low=1024, high=1024**3)] = (
        16 * 1024**2
    )
    pace_ms: Annotated[
        int,
        Option("First pause after a small transaction; the pause adapts. 0: never pause.", 0, 1_000),
    ] = 3
    transactions_per_second: Annotated[
        int, Option("Most transactions per second, of all shards of a process together.", low=1, high=10_000)
    ] = 400
    retry_budget_ms: Annotated[
        int,
        Option(
            "How long Kafka may refuse or not acknowledge a message before it becomes a dead letter.",
            0,
            DAY_MS,
        ),
    ] = 30 * SECOND_MS


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """The local timer index."""

    tick_ms: Annotated[int, Option("Time covered by one slot of the wheel's fine ring.", low=10, high=1_000)] = 100
    sync_interval_ms: Annotated[
        int,
        Option(
            "How often the timer log is synced to disk; after a power failure the rest is read from Kafka again.",
            10,
            MINUTE_MS,
        ),
    ] = 200


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The HTTP port: metrics, probes, the API and the page."""

    host: Annotated[
        str,
        Option("Address to listen on. Beyond a loopback address, queries need the token; metrics and probes never do."),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Option(
            "Port to listen on; 0: none. The first worker uses this port, each further worker the next one.", 0, 65_535
        ),
    ] = 8_080
    probe_port: Annotated[
        int,
        Option(
            "Second port, which answers only /healthz and /readyz, without TLS, also during a flood of the first one; "
            "0: none. Needs workers = 1.",
            0,
            65_535,
        ),
    ] = 0
    advertise: Annotated[
        str,
        Option(
            "Host name or address at which other processes reach this port. Empty: http.host or, if that is 0.0.0.0 or "
            "::, the local address of the route to Kafka."
        ),
    ] = ""
    names: Annotated[
        tuple[str, ...],
        Option(
            "Further host names by which clients reach the port, such as that of a Kubernetes service. The port "
            "refuses other names. It always accepts host, advertise, localhost, the machine's name, and IP addresses."
        ),
    ] = ()
    token_file: Annotated[
        Path | None,
        Option("File with the bearer token. Unset: the port refuses changes and, beyond a loopback address, queries."),
    ] = None
    tls_cert_file: Annotated[
        Path | None,
        Option(
            "PEM file with the certificate of the port and its chain. With it the port speaks only TLS, and queries to "
            "other members use HTTPS. The next connection uses a renewed file. Needs tls_key_file."
        ),
    ] = None
    tls_key_file: Annotated[Path | None, Option("PEM file with the private key of tls_cert_file, not encrypted.")] = (
        None
    )
    tls_ca_file: Annotated[
        Path | None,
        Option(
            "PEM file with the CAs that signed the certificates of the other members; unset: the CAs of the system."
        ),
    ] = None
    payloads: Annotated[
        Payloads,
        Option("Whether the API returns keys, headers and values of pending messages if a query asks for them."),
    ] = "never"

    @property
    def scheme(self) -> str:
        """The scheme of queries to the members of the group, the same for all of them."""
        return "http" if self.tls_cert_file is None and self.tls_ca_file is None else "https"


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a process. `loader.load` builds it; a bare `Config()` has the defaults."""

    group_id: Annotated[str, Option("Consumer group; its members share the shards.")] = "postdate"
    group_instance_id: Annotated[
        str,
        Option(
            "Static member name, for hosts with stable names and volumes; empty: none. Each process needs a different "
            "name. Several workers add -0, -1 and so on."
        ),
    ] = ""
    group_protocol: Annotated[
        GroupProtocol,
        Option(
            "How the members of the group share the shards: classic, by agreement of the members; consumer, as the "
            "broker decides (KIP-848, Kafka 4.0 or later)."
        ),
    ] = "classic"
    instance: Annotated[
        str, Option("Name of this process in dispatch log and logs; empty: <host name>-<process id>.")
    ] = ""
    data_dir: Annotated[Path | None, Option("Directory of the timer indexes; unset: <XDG_STATE_HOME>/postdate.")] = None
    workers: Annotated[
        int, Option("Number of processes on this machine, each a member of the group.", low=1, high=limits.WORKERS_MAX)
    ] = 1
    format_version: Annotated[
        int,
        Option(
            "The newest record formats and request headers that this deployment uses. Raise it once all members run a "
            "version that reads them.",
            low=1,
            high=FORMAT_VERSION_MAX,
        ),
    ] = 1
    traces: Annotated[
        TraceMode,
        Option(
            "opentelemetry: export a span when a message with a sampled traceparent is accepted, and when it is "
            "delivered. Needs the packages of postdate[otel]."
        ),
    ] = "off"
    log_level: Annotated[LogLevel, Option("Lowest severity that is logged.")] = "info"
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
        """The configured instance, or `<host name>-<process id>` of this process."""
        return self.instance or f"{socket.gethostname()}-{os.getpid()}"

    @property
    def data_path(self) -> Path:
        """The configured data directory, or `postdate` in the XDG state directory; not created here."""
        if self.data_dir is not None:
            return self.data_dir
        state_home = os.environ.get("XDG_STATE_HOME", "")
        return (Path(state_home) if state_home else Path.home() / ".local" / "state") / "postdate"

    @property
    def request_topic_names(self) -> tuple[str, ...]:
        """The names of the request topics, in the order configured."""
        return tuple(topic.name for topic in self.request_topics)

    def request_topic(self, name: str) -> RequestTopicConfig:
        """Returns the settings of the request topic `name`. Raises KeyError if this process does not serve it."""
        for topic in self.request_topics:
            if topic.name == name:
                return topic
        raise KeyError(name)
