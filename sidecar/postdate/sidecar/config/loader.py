"""Builds the `Config` of a process: defaults < TOML file < properties file < environment < flags.

All invalid settings of all sources are reported in one `ConfigError`, so that they can be fixed together. Only a file
that cannot be read or parsed is reported immediately and alone. This module sends no request to Kafka;
`cluster.topics` checks the live topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postdate.kafka.errors import SettingRefused
from postdate.kafka.settings import GroupProtocol, refuse
from postdate.sidecar.config import limits
from postdate.sidecar.config.rate_rules import RateRules
from postdate.sidecar.config.schema import REQUEST_TOPICS, leaves, sections, topic_leaves
from postdate.sidecar.config.setting_sources import (
    CONFIG_FILE_VARIABLE,
    Read,
    Setting,
    nearest,
    read_environment,
    read_properties,
    read_toml,
)
from postdate.sidecar.config.settings import (
    HOUR_MS,
    Config,
    DispatchConfig,
    HttpConfig,
    IndexConfig,
    KafkaConfig,
    RequestTopicConfig,
    TopicsConfig,
)
from postdate.sidecar.config.values import convert, may_be_secret, property_text, without_secrets
from postdate.sidecar.errors import ConfigError
from postdate.wire.dialects.table import DIALECTS
from postdate.wire.headers import TOPIC
from postdate.wire.limits import RETURNS_VERSION
from postdate.wire.requests.retry_policies import parse_named
from postdate.wire.requests.rules import RequestRules
from postdate.wire.topics import OwnTopics, is_topic_name

DEFAULT_SOURCE = "default"

# A host name, an IPv4 or IPv6 address, or nothing.
_HOST = re.compile(r"[A-Za-z0-9._-]*|[0-9A-Fa-f:.]+")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and the source of each value; `sources` by path, librdkafka properties as `table/name`."""

    config: Config
    sources: dict[str, str]

    def source(self, path: str) -> str:
        """Returns the source of the value of `path`: a file, a variable, a flag, or `default`."""
        return self.sources.get(path, DEFAULT_SOURCE)


@dataclass(frozen=True, slots=True)
class Flags:
    """The values from the command line. `values` by option path; `properties` are the -X arguments, as name and
    value."""

    config_file: Path | None = None
    properties_file: Path | None = None
    properties: tuple[tuple[str, str], ...] = ()
    values: Mapping[str, object] | None = None


def load(flags: Flags, environ: Mapping[str, str]) -> Loaded:
    """Returns the configuration from files, environment and flags.

    Raises ConfigError if a file cannot be read or is not TOML. Otherwise raises ConfigError if a key is unknown, a
    value is out of its bounds, two values contradict each other, or a librdkafka property is refused; the text names
    every such problem.
    """
    reads: list[Read] = []
    config_file = flags.config_file or (
        Path(environ[CONFIG_FILE_VARIABLE]) if environ.get(CONFIG_FILE_VARIABLE) else None
    )
    if config_file is not None:
        reads.append(read_toml(config_file))
    if flags.properties_file is not None:
        reads.append(read_properties(flags.properties_file))
    reads += [read_environment(environ), _read_flags(flags)]
    problems = [problem for read in reads for problem in read.problems]
    sources: dict[str, str] = {}
    config = _build([setting for read in reads for setting in read.settings], sources, problems)
    problems += _contradictions(config)
    if problems:
        raise ConfigError("\n".join(problems))
    return Loaded(config, sources)


def require_bootstrap(config: Config) -> None:
    """Raises ConfigError if the configuration has no bootstrap servers."""
    if not config.kafka.bootstrap_servers:
        raise ConfigError(
            "no broker given: use -b HOST:PORT, POSTDATE_KAFKA_BOOTSTRAP_SERVERS, or bootstrap_servers under [kafka] in"
            " the configuration file"
        )


def _read_flags(flags: Flags) -> Read:
    read = Read([], [])
    for path, value in (flags.values or {}).items():
        if value is not None and value != ():
            read.settings.append(Setting(path, value, "flag"))
    for name, value in flags.properties:
        if may_be_secret(name):
            variable = f"POSTDATE_KAFKA_COMMON_{name.upper().replace('.', '_')}"
            read.problems.append(
                f"-X {name}: this is a secret, or an unknown property that may be a misspelt secret. Every user of the"
                f" machine can read the command line: use {variable},"
                f" {variable}_FILE, or -F FILE"
            )
        else:
            read.settings.append(Setting("kafka.common", value, "flag -X", name))
    return read


def _build(settings: Iterable[Setting], sources: dict[str, str], problems: list[str]) -> Config:
    """Builds the tree from the settings; a later setting overrides an earlier one. Adds the problem of an invalid value
    to `problems`, and keeps the earlier value or the default."""
    values: dict[str, Any] = {path: leaf.default for path, leaf in leaves().items()}
    for path, leaf in leaves().items():
        if leaf.is_properties:
            values[path] = {}
    for setting in settings:
        key = f"{setting.path}/{setting.name}" if setting.name else setting.path
        try:
            if setting.path == REQUEST_TOPICS:
                values[REQUEST_TOPICS] = _request_topics(setting, values[REQUEST_TOPICS], problems)
            elif setting.name:
                values[setting.path][setting.name] = property_text(setting.name, setting.value)
            else:
                values[setting.path] = convert(leaves()[setting.path], setting.value)
            sources[key] = setting.source
        except ValueError as error:
            problems.append(f"{setting.source}: {setting.name or setting.path} {error}")
    tree: dict[str, dict[str, Any]] = {section: {} for section in sections()}
    for path, value in values.items():
        section, _, name = path.rpartition(".")
        tree[section][name] = value
    return Config(
        **tree[""],
        kafka=KafkaConfig(**tree["kafka"]),
        topics=TopicsConfig(**tree["topics"]),
        dispatch=DispatchConfig(**tree["dispatch"]),
        index=IndexConfig(**tree["index"]),
        http=HttpConfig(**tree["http"]),
    )


def _request_topics(
    setting: Setting, earlier: tuple[RequestTopicConfig, ...], problems: list[str]
) -> tuple[RequestTopicConfig, ...]:
    """Returns the request topics of a setting. Tables define topics. Names alone (environment, flags) select from the
    earlier topics; an unknown name adds a topic with the defaults."""
    if isinstance(setting.value, list) and all(isinstance(table, dict) for table in setting.value):
        return tuple(_request_topic(table, setting.source, problems) for table in setting.value)
    names = setting.value.replace(",", " ").split() if isinstance(setting.value, str) else list(setting.value)
    by_name = {topic.name: topic for topic in earlier}
    return tuple(by_name.get(name, RequestTopicConfig(name=name)) for name in names)


def _request_topic(table: Mapping[str, Any], source: str, problems: list[str]) -> RequestTopicConfig:
    values: dict[str, Any] = {}
    for name, leaf in topic_leaves().items():
        if name not in table:
            continue
        try:
            values[name] = convert(leaf, table[name])
        except ValueError as error:
            problems.append(f"{source}: {REQUEST_TOPICS}.{name} of {table.get('name', '?')} {error}")
    return RequestTopicConfig(**values)


def _contradictions(config: Config) -> list[str]:
    """Returns problems of combined values, and of values whose options have no bounds, such as an empty name."""
    problems = _request_topic_problems(config)
    topics = config.topics
    least_ms = topics.retention_ms + topics.segment_ms + limits.DISPATCH_LOG_RETENTION_MARGIN_MS
    if topics.dispatch_log_retention_ms < least_ms:
        problems.append(
            f"topics.dispatch_log_retention_ms is {topics.dispatch_log_retention_ms}, and must be at least {least_ms}"
            " (topics.retention_ms + topics.segment_ms + 1 h): a request must never outlive its fate"
        )
    if topics.min_insync_replicas > topics.replication_factor:
        problems.append(
            f"topics.min_insync_replicas ({topics.min_insync_replicas}) is more than topics.replication_factor"
            f" ({topics.replication_factor}): no write could ever be acknowledged"
        )
    if not config.group_id:
        problems.append("group_id is empty")
    if not config.http.host:
        problems.append("http.host is empty: name an address, such as 127.0.0.1 or 0.0.0.0")
    if not _HOST.fullmatch(config.http.advertise):
        problems.append(
            f"http.advertise is {without_secrets(config.http.advertise)!r}: name a host or an address, without a port"
        )
    if (config.http.tls_cert_file is None) != (config.http.tls_key_file is None):
        problems.append("http.tls_cert_file and http.tls_key_file go together: set both, or neither")
    if config.http.port and config.http.port + config.workers - 1 > 65_535:
        problems.append(f"http.port is {config.http.port}: {config.workers} workers need that many consecutive ports")
    if config.http.probe_port and config.http.probe_port == config.http.port:
        problems.append(f"http.probe_port is {config.http.probe_port}, which is also http.port")
    if config.http.probe_port and config.workers > 1:
        problems.append(f"http.probe_port is set, and workers is {config.workers}: only one process can use a port")
    if HOUR_MS % config.index.tick_ms:
        problems.append(f"index.tick_ms is {config.index.tick_ms}, and must divide an hour, as 50, 100 and 200 do")
    return problems + _refused_properties(config.kafka, config.group_protocol)


def _refused_properties(kafka: KafkaConfig, group_protocol: GroupProtocol) -> list[str]:
    """Returns the librdkafka properties that would break the protocol, each with the reason."""
    problems: list[str] = []
    tables = {"common": kafka.common, "consumer": kafka.consumer, "producer": kafka.producer, "admin": kafka.admin}
    for table, properties in tables.items():
        for name, value in properties.items():
            try:
                refuse(f"kafka.{table}", name, value, group_protocol)
            except SettingRefused as error:
                problems.append(str(error))
    return problems


def _request_topic_problems(config: Config) -> list[str]:
    problems: list[str] = []
    names = config.request_topic_names
    if not 1 <= len(names) <= limits.REQUEST_TOPICS_MAX:
        problems.append(f"{len(names)} request topics: must be 1 to {limits.REQUEST_TOPICS_MAX}")
    if len(set(names)) != len(names):
        problems.append(f"a request topic is named twice: {', '.join(names)}")
    owner: dict[str, str] = {}
    for name in names:
        try:
            owner |= {own: name for own in OwnTopics.of(name).names() if own != name}
        except ValueError as error:
            problems.append(f"request topic {name!r}: {error}")
    for topic in config.request_topics:
        if topic.name in owner:
            problems.append(f"request topic {topic.name} is already a topic of Postdate's own for {owner[topic.name]}")
        if not 1 <= len(topic.levels_ms) <= limits.LEVELS_MAX:
            problems.append(f"request topic {topic.name}: levels_ms must hold 1 to {limits.LEVELS_MAX} delays")
        elif max(topic.levels_ms) > topic.horizon_ms:
            problems.append(f"request topic {topic.name}: a level is longer than horizon_ms, so it would be refused")
        if not topic.allow:
            problems.append(f"request topic {topic.name}: allow is empty, so every request would be refused")
        try:
            RateRules.of(topic.messages_per_second_max)
        except ValueError as error:
            problems.append(f"request topic {topic.name}: messages_per_second_max: {error}")
        problems += _policy_problems(topic, config.format_version)
        problems += _dialect_problems(topic, frozenset([*names, *owner]))
    return problems


def _policy_problems(topic: RequestTopicConfig, format_version: int) -> list[str]:
    """Returns problems with the named retry policies of a request topic."""
    place = f"request topic {topic.name}: retry_policies"
    try:
        policies = parse_named(topic.retry_policies)
    except ValueError as error:
        return [f"{place}: {error}"]
    problems = [
        f"{place}: {name} has a max above horizon_ms, so its returns would be refused"
        for name, policy in policies.items()
        if policy.max_ms > topic.horizon_ms
    ]
    if len(policies) > limits.RETRY_POLICIES_MAX:
        problems.append(f"{place} must hold at most {limits.RETRY_POLICIES_MAX} policies")
    if policies and format_version < RETURNS_VERSION:
        problems.append(f"{place} needs format_version = {RETURNS_VERSION}: set it after all members are upgraded")
    return problems


def _dialect_problems(topic: RequestTopicConfig, own: frozenset[str]) -> list[str]:
    """Returns problems with the dialects of a request topic, and with the default target for dialects that name no
    target.

    `own`: the topics of Postdate, which may not be targets.
    """
    place = f"request topic {topic.name}:"
    problems = [
        f"{place} unknown dialect {name}{nearest(name, DIALECTS)}" for name in topic.dialects if name not in DIALECTS
    ]
    if problems:
        return problems
    without = [name for name in topic.dialects if not DIALECTS[name].names_of(TOPIC)]
    if without and not topic.default_target:
        problems.append(f"{place} a request of {without[0]} names no target: set default_target")
    if topic.default_target:
        if all(DIALECTS[name].needs_target for name in topic.dialects):
            problems.append(f"{place} default_target is for dialects that name no target, and none is spoken")
        elif not is_topic_name(topic.default_target):
            problems.append(f"{place} default_target {topic.default_target!r} is not a topic name")
        elif not RequestRules(topic="any", forbidden=own, allow=topic.allow).permits(topic.default_target):
            problems.append(f"{place} default_target {topic.default_target} is not allowed as a target")
    return problems
