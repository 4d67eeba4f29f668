"""Settings of the Kafka clients: the defaults that the protocol needs, then the user's properties. Properties that
would break the protocol are refused.

The user's properties have librdkafka's names: `common` for every client, then `consumer`, `producer` and `admin`.
Values may be text. Immutable; threads may share them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from postdate.kafka import limits
from postdate.kafka.errors import SettingRefused
from postdate.kafka.secrets import Renewal, SecretFile, SettableClient

Properties = Mapping[str, str | int | float | bool]
ClientConf = dict[str, Any]

#: How the members of a consumer group share partitions: `classic` by agreement among them, `consumer` as the broker
#: decides (KIP-848).
GroupProtocol = Literal["classic", "consumer"]

#: The logger of the client library.
log = logging.getLogger("postdate.kafka.client")

#: Properties that only Postdate sets, in every table.
_OURS: Mapping[str, str] = {
    "bootstrap.servers": "it is the setting bootstrap_servers",
    "metadata.broker.list": "it is another name for bootstrap.servers, which is the setting bootstrap_servers",
    "group.id": "it is the setting group_id",
    "group.instance.id": "it is the setting group_instance_id",
    "transactional.id": "it names the shard, so that two owners of one shard fence each other",
    "isolation.level": "requests and fates of aborted transactions do not exist",
    "enable.auto.commit": "the group offset follows what was ingested",
    "enable.auto.offset.store": "the group offset follows what was ingested",
    "auto.offset.reset": "a position outside of the log must be seen, not reset",
    "auto.commit.interval.ms": "the group offset follows what was ingested",
    "group.protocol": "it is the setting group_protocol",
    "partition.assignment.strategy": "the hand-over of shards is built on cooperative-sticky",
    "enable.partition.eof": "recovery ends at a position, never at an end-of-file event",
    "enable.idempotence": "without it a retry may write a message twice",
    "enable.gapless.guarantee": "a failed record must not end the producer",
    "retry.backoff.ms": "the duration of a transaction's end must show whether it was requested twice",
    "retry.backoff.max.ms": "the duration of a transaction's end must show whether it was requested twice",
    "acks": "a committed message must survive its leader",
    "request.required.acks": "a committed message must survive its leader",
    "partitioner": "messages must land where a Java producer would put them",
    "allow.auto.create.topics": "a mistyped target must not become a topic",
    "enable.metrics.push": "pushed client metrics would add requests that delay transactions",
}

#: The ranges that Postdate's protocol allows: name -> (least, most), both in ms. The library's ranges are wider.
_RANGES: Mapping[str, tuple[int, int]] = {
    "transaction.timeout.ms": (2_000, 900_000),
    "message.timeout.ms": (500, 60_000),
    "fetch.wait.max.ms": (0, limits.CONSUMER_ANSWER_MS_MAX - 1_000),
    "statistics.interval.ms": (500, limits.STATISTICS_INTERVAL_MS),
}

#: Log only critical messages. A consumer's poll returns only after it has delivered all log lines (librdkafka issue
#: 5325), and an unreachable broker causes twenty lines a second. Errors arrive as events as well.
_CONSUMER_LOG_LEVEL: Final = 2

_COMMON: Properties = {
    "client.id": "postdate",
    "enable.metrics.push": False,
    "allow.auto.create.topics": False,
    "socket.keepalive.enable": True,
    "reconnect.backoff.max.ms": limits.RECONNECT_BACKOFF_MS_MAX,
}
_CONSUMER: Properties = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": limits.FETCHED_AHEAD_KB_MAX,
    "fetch.queue.backoff.ms": limits.FETCH_QUEUE_BACKOFF_MS,
    "topic.metadata.refresh.interval.ms": limits.METADATA_REFRESH_MS,
    "socket.timeout.ms": limits.CONSUMER_ANSWER_MS_MAX,
    "fetch.max.bytes": limits.FETCH_SIZE_BYTES_MAX,
    "log_level": _CONSUMER_LOG_LEVEL,
}
_MEMBER: Properties = {"statistics.interval.ms": limits.STATISTICS_INTERVAL_MS}
_CLASSIC_MEMBER: Properties = {
    "session.timeout.ms": limits.SESSION_TIMEOUT_MS,
    "heartbeat.interval.ms": limits.HEARTBEAT_INTERVAL_MS,
}
_PRODUCER: Properties = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "message.timeout.ms": limits.MESSAGE_TIMEOUT_MS,
    "topic.metadata.propagation.max.ms": limits.METADATA_PROPAGATION_MS_MAX,
}


def _nothing() -> Properties:
    return MappingProxyType({})


def _with_room(conf: ClientConf) -> ClientConf:
    """Returns the properties with larger fetches if needed: librdkafka refuses a consumer whose fetches are smaller
    than its largest message."""
    return conf | {
        "fetch.max.bytes": max(int(conf[name]) for name in ("fetch.max.bytes", "message.max.bytes") if name in conf)
    }


@dataclass(frozen=True)
class KafkaSettings:
    """The address of a cluster and the properties of its clients. Raises SettingRefused, with the reason, for a
    property or a value that `refuse` does not allow.

    `reader_group_id` is the group id that readers send to the broker, which an ACL may require; they never join a
    group. `group_protocol` applies to members of a group.
    """

    bootstrap_servers: str
    common: Properties = field(default_factory=_nothing)
    consumer: Properties = field(default_factory=_nothing)
    producer: Properties = field(default_factory=_nothing)
    admin: Properties = field(default_factory=_nothing)
    reader_group_id: str = "postdate"
    group_protocol: GroupProtocol = "classic"
    admin_timeout_s: float = limits.ADMIN_TIMEOUT_S

    def __post_init__(self) -> None:
        for section in ("common", "consumer", "producer", "admin"):
            for name, value in getattr(self, section).items():
                refuse(f"kafka.{section}", name, value, self.group_protocol)

    @property
    def transaction_timeout_ms(self) -> int:
        """The transaction time-out of the producers, ms."""
        given = {**self.common, **self.producer}.get("transaction.timeout.ms", limits.TRANSACTION_TIMEOUT_MS)
        return int(given)

    def group_consumer_conf(self, group_id: str, instance_id: str | None, address: str = "") -> ClientConf:
        """Returns the properties of a member of the consumer group. Its client id contains `address`, if given."""
        is_classic = self.group_protocol == "classic"
        sized = {**_MEMBER, **_CLASSIC_MEMBER} if is_classic else _MEMBER
        conf = _with_room(self._conf(_CONSUMER, sized, self.consumer))
        if address:
            conf["client.id"] = f"{conf['client.id']}@{address}"
        conf |= {"group.id": group_id, "group.protocol": self.group_protocol, "isolation.level": "read_committed"}
        if is_classic:
            conf["partition.assignment.strategy"] = "cooperative-sticky"
        if instance_id:
            conf["group.instance.id"] = instance_id
        return conf

    def reader_conf(self, isolation: str) -> ClientConf:
        """Returns the properties of a reader of one partition."""
        sized: Properties = {"queued.max.messages.kbytes": limits.READ_AHEAD_KB_MAX}
        return _with_room(self._conf(_CONSUMER, sized, self.consumer)) | {
            "group.id": self.reader_group_id,
            "isolation.level": isolation,
        }

    def producer_conf(self, transactional_id: str | None, message_bytes_max: int) -> ClientConf:
        """Returns the properties of a producer: transactional if there is an id, otherwise only idempotent."""
        conf = self._conf(_PRODUCER, {"message.max.bytes": message_bytes_max}, self.producer)
        if transactional_id is None:
            conf.pop("transaction.timeout.ms", None)
        else:
            conf |= {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": self.transaction_timeout_ms,
                "retry.backoff.ms": limits.REPEAT_AFTER_MS,
                "retry.backoff.max.ms": 2 * limits.REPEAT_AFTER_MS,
            }
        return conf

    def admin_conf(self) -> ClientConf:
        """Returns the properties of an admin client. Its log queue is never served, so nothing may fill that queue."""
        return self._conf({}, {}, self.admin) | {"log_level": 0}

    def renewal(self, client: SettableClient, given: Properties) -> Renewal:
        """Returns the renewal of the password of `client`. `given`: the properties of this kind of client."""
        properties = {**self.common, **given}
        password = properties.get("sasl.password")
        username = str(properties.get("sasl.username", ""))
        return Renewal(client, username, password if isinstance(password, SecretFile) else None)

    def _conf(self, role: Properties, sized: Properties, given: Properties) -> ClientConf:
        conf = {**_COMMON, **role, **sized, **self.common, **given, "bootstrap.servers": self.bootstrap_servers}
        return {name: value.read() if isinstance(value, SecretFile) else value for name, value in conf.items()}


def refuse(section: str, name: str, value: object, group_protocol: GroupProtocol = "classic") -> None:
    """Raises SettingRefused if only Postdate may set the property, if its value is outside the range of `_RANGES`, or
    if the property does not exist in the group protocol.

    Pure, for use while a configuration is read. Does not check whether librdkafka knows the property: creating a client
    does.
    """
    reason = _OURS.get(name)
    if reason is not None:
        raise SettingRefused(f"{section}: {name} cannot be set: {reason}.")
    if group_protocol == "consumer" and name in _CLASSIC_MEMBER:
        raise SettingRefused(
            f"{section}: {name} does not exist with group_protocol = consumer: remove it here, and set "
            f"group.consumer.{name} on the brokers."
        )
    if name in _RANGES:
        least, most = _RANGES[name]
        try:
            number = int(str(value))
        except ValueError:
            raise SettingRefused(f"{section}: {name} must be a number of milliseconds, not {value!r}.") from None
        if not least <= number <= most:
            raise SettingRefused(f"{section}: {name} must lie between {least} and {most} ms, not {number}.")


# The client library has no call that lists its properties. A test compares this list with the installed library.
_LIBRARY_NAMES: Final = """
acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
auto.commit.enable auto.commit.interval.ms auto.offset.reset batch.num.messages batch.size bootstrap.servers
broker.address.family broker.address.ttl broker.version.fallback builtin.features check.crcs client.dns.lookup
client.id client.rack compression.codec compression.level compression.type connections.max.idle.ms
consume.callback.max.messages coordinator.query.interval.ms debug delivery.report.only.error delivery.timeout.ms
enable.auto.commit enable.auto.offset.store enable.gapless.guarantee enable.idempotence enable.metrics.push
enable.partition.eof enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification
enabled_events fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes
fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type
group.remote.assignor heartbeat.interval.ms https.ca.location https.ca.pem internal.termination.signal
isolation.level linger.ms log.connection.close log.queue log.thread.name log_level max.in.flight
max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
message.copy.max.bytes message.max.bytes message.send.max.retries message.timeout.ms metadata.broker.list
metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy offset.store.method
offset.store.path offset.store.sync.interval.ms partition.assignment.strategy partitioner plugin.library.paths
produce.offset.report queue.buffering.backpressure.threshold queue.buffering.max.kbytes
queue.buffering.max.messages queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages
queuing.strategy receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
reconnect.backoff.ms request.required.acks request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
sasl.kerberos.service.name sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username
security.protocol session.timeout.ms share.acknowledgement.mode socket.blocking.max.ms
socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location
ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list
ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location ssl.key.password
ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list statistics.interval.ms
sticky.partitioning.linger.ms topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
transaction.timeout.ms transactional.id
"""

PROPERTY_NAMES: Final = frozenset(_LIBRARY_NAMES.split())
"""The names of librdkafka's properties."""
