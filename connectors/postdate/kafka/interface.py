"""The interface between Postdate and Kafka: all requests that the rest of the code sends to a cluster.

It has two implementations: one over confluent_kafka, in this package, and a simulated broker. Both pass the same suite
in `tests/contract`, so that results of the simulation hold for Kafka.

Rules for every method, unless its docstring states another:

- It raises only `errors.KafkaFault`. The caller reacts to the class of the fault; only `classification` gives its code
  a meaning.
- A `timeout_s` is how long the call may block; methods without a `timeout_s` do not wait for the network.
- An instance belongs to one thread at a time. Only Kafka and Admin may be shared by threads.
- Callbacks run on the calling thread, inside a call of the client.
- Waiting for the network releases the GIL.

Source of the idea, a documented contract that one suite tests against the fake and the real implementation:
`arroyo/backends/abstract.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from postdate.kafka import limits
from postdate.kafka.errors import KafkaFault
from postdate.kafka.statistics import BrokerStatistics

Headers = list[tuple[str, bytes | None]]

_ADDRESS = re.compile(r"[A-Za-z0-9._-]{1,253}:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}")

#: Called once per produced record: the fault or None, then the offset and timestamp (epoch ms) from the broker,
#: -1 if unknown. Under LogAppendTime the timestamp is the broker's clock; otherwise it is the producer's own.
OnDelivery = Callable[[KafkaFault | None, int, int], None]


class Partition(NamedTuple):
    """One partition of one topic; a plain tuple, so it is cheap as a dictionary key."""

    topic: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which a partition does not need


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a log.

    `timestamp_ms` is -1 if the record has none. `log_append` is True if the broker's clock set it. `headers` is an
    empty list if the record has none, and None if the client cannot read them (a name that is not UTF-8).
    """

    offset: int
    timestamp_ms: int
    log_append: bool
    key: bytes | None
    value: bytes | None
    headers: Headers | None


class Isolation(Enum):
    """Which records a reader gets, and which offset counts as the end of a log. READ_UNCOMMITTED: all appended records,
    up to the high watermark. READ_COMMITTED: no records of aborted or open transactions, up to the last stable offset.
    """

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class TopicInfo(NamedTuple):
    """The cluster's description of a topic. `partitions` maps each index to True if the partition has a leader now.
    `config` has the requested settings that ACLs allow reading, all values as text. `writable` is False if ACLs forbid
    these credentials to write to the topic. A topic that ACLs hide has an empty `topic_id` (see `Admin.describe`)."""

    name: str
    topic_id: str
    partitions: dict[int, bool]
    config: dict[str, str]
    writable: bool = True


LookedUp = dict[str, TopicInfo] | None  # None: no answer yet


class Operation(Enum):
    """The operations of ACLs that Postdate needs; the values are Kafka's names."""

    READ = "Read"
    WRITE = "Write"
    ALTER = "Alter"
    DESCRIBE_CONFIGS = "DescribeConfigs"


class NewTopic(NamedTuple):
    """A topic to create; `replication` -1 takes the cluster's default."""

    name: str
    partitions: int
    replication: int
    config: dict[str, str]


class GroupMember(NamedTuple):
    """One member of a consumer group; `instance_id` is empty for a dynamic member."""

    member_id: str
    instance_id: str
    client_id: str
    host: str
    partitions: tuple[Partition, ...]

    @property
    def address(self) -> str:
        """The HOST:PORT that the member advertises after the last `@` of its client id, or "" if there is none."""
        address = self.client_id.rpartition("@")[2]
        is_address = _ADDRESS.fullmatch(address) and 0 < int(address.rpartition(":")[2]) < 65_536
        return address if is_address else ""


class GroupListener(Protocol):
    """Receives rebalances. The consumer calls it inside `GroupConsumer.poll` or `close`, on the calling thread, and
    never with an empty sequence. Its methods must return soon (well below the poll interval, 5 min) and must not
    raise."""

    def assigned(self, parts: Sequence[Partition]) -> None:
        """Takes additional partitions. They are paused and silent until `start` is called for each."""

    def revoked(self, parts: Sequence[Partition]) -> None:
        """Releases partitions, which this member still holds until the call returns: the last chance to commit."""

    def lost(self, parts: Sequence[Partition]) -> None:
        """Stops work on partitions that this member has lost. Another member may already hold them, so this method must
        not wait for anything."""


class GroupConsumer(Protocol):
    """A member of a consumer group on the request topics: read_committed, cooperative, without automatic commits.

    All methods belong to the poll thread, except `confirm`.
    """

    def subscribe(self, topics: Sequence[str], listener: GroupListener) -> None:
        """Joins the group for these topics; assignments arrive through `listener` during later polls. Does not wait."""

    def poll(self, records_max: int, timeout_s: float) -> list[tuple[Partition, list[Record]]]:
        """Serves callbacks, and returns up to `records_max` records, grouped by partition, each group with rising
        offsets (gaps are markers, aborted or compacted records).

        Waits for at most `timeout_s` for the first record; an empty list is no error. Never returns a record of a
        paused partition, nor one before the offset given to the last `start`. Partition errors are not raised here:
        `errors` returns them. Raises FatalClient, Fenced if another client replaced this static member, NameInUse if
        another member has its static name, OtherProtocol, NotAuthorized, or UnsupportedByBroker, even if another call
        or a callback got the error. After this, the client holds no partitions, every poll raises, and the listener is
        not called: the caller closes the client and creates a new one.
        """

    def errors(self) -> list[tuple[Partition | None, KafkaFault]]:
        """Returns and clears the errors since the last call, each with its partition, or None for an error of the whole
        client."""

    def start(self, part: Partition, offset: int) -> None:
        """Makes records of an assigned partition arrive from the next poll on, beginning at `offset` or the first
        record after it. Also moves a started partition, and ends its pause. Raises KafkaFault if the partition is not
        assigned."""

    def pause(self, parts: Iterable[Partition]) -> None:
        """Holds back the records of these partitions until `resume`; none is skipped. Ignores partitions that are not
        assigned."""

    def resume(self, parts: Iterable[Partition]) -> None:
        """Continues where `pause` stopped. Ignores partitions that are not assigned."""

    def commit(self, offsets: Mapping[Partition, int], notes: Mapping[Partition, str] | None = None) -> None:
        """Publishes group offsets for tools that show the lag. Asynchronous; a failure is only logged, since nothing
        resumes from these offsets. `notes`: the metadata of the offsets (`Admin.group_note`). Committing a
        partition without a note removes its note."""

    def commit_note(self, part: Partition, offset: int, note: str) -> None:
        """Stores `note` and this offset in the group for an assigned partition: after the call, every later owner reads
        the note. Blocks while the client retries. Raises Fenced or another KafkaFault if this member has lost the
        partition, or the coordinator does not answer: the note may then be stored or not."""

    def leave(self) -> None:
        """Gives all partitions back during the next polls, and leaves the group. With the group protocol `classic`,
        this is also true of a static member. With the group protocol `consumer`, other members get the partitions of a
        static member when its session has timed out."""

    def committed(self, parts: Sequence[Partition], timeout_s: float) -> dict[Partition, int | None]:
        """Returns the group's committed offset of each partition, or None for a partition without one. Blocks. Raises
        Unreachable, NotAuthorized."""

    def positions(self, parts: Sequence[Partition]) -> dict[Partition, int]:
        """Returns for each partition the offset of the next record that `poll` may return, past markers and aborted
        records. Omits partitions that are not assigned, or whose last `start` has not taken effect, or from which
        nothing was fetched yet. Does not wait."""

    def confirm(self, parts: Sequence[Partition], timeout_s: float) -> frozenset[Partition]:
        """Returns the partitions of `parts` that this member holds according to the coordinator, by one request.
        Returns an empty set if the request fails, and while the group rebalances. Commits nothing, since a takeover
        reads a committed offset as the sign of an earlier owner. Blocks, and opens a connection for this request. It is
        the only method that may run on another thread while the poll thread runs."""

    def assignment(self) -> frozenset[Partition]:
        """Returns the current assignment of this member, according to the library."""

    def member_id(self) -> str:
        """Returns the id of this member in the group, or "" before the coordinator has accepted it."""

    def statistics(self) -> tuple[BrokerStatistics, ...]:
        """Returns measurements of the connections to the brokers, updated every few seconds. Returns an empty tuple
        before the first measurement, and if nothing is measured. Does not wait."""

    def close(self) -> None:
        """Leaves the group (a static member does not), and calls `revoked` for the partitions that it still holds.
        Blocks for at most some seconds. Raises KafkaFault if the client fails while it leaves; it is closed
        nevertheless. A second call does nothing."""


class LogReader(Protocol):
    """Reads one partition from a given offset, without a group, with the isolation level given at its creation."""

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        """Returns up to `records_max` records in offset order. Blocks until at least one record is there or `timeout_s`
        has passed; a read without records may then query the topic, for at most `timeout_s` again (at least 0.1 s). An
        empty list only means that nothing arrived in time: compare `position` with the wanted end. If the partition's
        leader freezes, reading continues within 30 s of the election of another leader.

        Raises OffsetOutOfRange if the position is not in the log (there is no automatic reset), Unreachable only if the
        client has given up, NotAuthorized, FatalClient.
        """

    def position(self) -> int:
        """Returns the offset of the next record that `read` may return: every record below it has been returned, or
        does not exist for this isolation level. Passes transaction markers and aborted records, even at the end of the
        log. With READ_COMMITTED it stops at the first record of an open transaction. Moves only inside `read`."""

    def close(self) -> None:
        """Frees the client. A second call does nothing."""


class TransactionalProducer(Protocol):
    """One producer with a transactional id. One shard thread creates it, uses it, and destroys it.

    Order of calls: `init`, then any number of { `settle`, `begin`, `produce`..., `flush`, `commit` or `abort` }.
    """

    def init(self, timeout_s: float, topic: str = "") -> None:
        """Fences every older producer with this id, and ends its open transaction: after the call, that transaction is
        committed or aborted. `topic`: an existing topic. The call is faster with it, since the client first learns the
        addresses of the brokers. Repeats retriable failures until `timeout_s` has passed. Raises Retriable or
        Unreachable (call again on the same instance), NotAuthorized, Fenced, FatalClient."""

    def begin(self, created_ms: int = 0) -> None:
        """Opens a transaction locally, without waiting. Raises Fenced, FatalClient.

        `created_ms`: the CreateTime of its records, epoch ms; with 0, each record gets the time of the local clock.
        Brokers refuse records whose timestamp is more than `message.timestamp.after.max.ms` ahead of their clock; since
        Kafka 4, the default is one hour.
        """

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Hands one record to the client, for a topic that is writable. *Measured*: a topic that ACLs forbid fails the
        whole transaction, no report names it, and `abort` may end in FatalClient. With partition -1, the client chooses
        the partition by the murmur2 hash of the key, as the Java client does, or any partition if the key is None.

        Does not wait for the network, unless the client's queue is full: then it serves callbacks and waits, at most
        for one second longer than the message time-out. Raises RecordRejected if the record can be refused at once (too
        large, no such partition), Retriable if the queue stays full, AbortRequired if the transaction has already
        failed, Fenced, FatalClient. A later failure appears in `on_delivery`, if given, and in `commit`.
        """

    def flush(self, timeout_s: float) -> int:
        """Waits until every record has its delivery report, and serves the reports. Returns the number of records
        without one.

        If the transaction has failed and reports stop coming, raises what `commit` would raise: the client sends
        nothing more of the transaction, and the other records would wait for the message time-out.
        """

    def commit(self) -> None:
        """Commits the transaction. Waits as long as that takes (the caller may have a watchdog), and repeats retriable
        errors until the transaction time-out is used up. Raises AbortRequired if no part of the transaction will ever
        be visible: call `abort`. Raises its subclass RecordRejected if single records were refused; `on_delivery`
        reports them and the reasons. Raises UnknownOutcome, Fenced or FatalClient; the transaction may then be
        committed or not.
        """

    def abort(self) -> None:
        """Aborts the transaction. Waits and repeats as `commit` does. Never raises AbortRequired.

        Raises UnknownOutcome (also if the coordinator refuses the abort), Fenced or FatalClient. Expect FatalClient
        after records have timed out: the coordinator may refuse to end a transaction that it has already given up.
        After any of these errors, destroy this producer and fence again. If no commit was requested, the transaction
        cannot commit; otherwise the log shows the outcome.
        """

    def settle(self) -> bool:
        """Serves all callbacks. Returns True if the next transaction may begin on this producer.

        Returns False if the end of the last transaction took so long that it may have been requested twice, or if a
        connection is known to have failed since the transaction began. A delayed EndTxn might then still be in the
        network and decide the *next* transaction (KAFKA-17754): destroy this producer and fence again.
        """

    def destroy(self) -> None:
        """Drops the client without waiting for records in flight. An open transaction stays open until the next `init`
        or the transaction time-out. A second call does nothing."""


class PlainProducer(Protocol):
    """An idempotent producer without transactions: for commands, for the store topic in a takeover, and for tests."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Produces as `TransactionalProducer.produce` does."""

    def flush(self, timeout_s: float) -> int:
        """Waits as `TransactionalProducer.flush` does."""

    def destroy(self) -> None:
        """Drops the client and the records that it has not sent. A second call does nothing."""


class Admin(Protocol):
    """Queries and changes of the cluster. Threads may share it.

    Every method except `look_up` and `close` waits for the cluster. `admin_timeout_s` of the settings limits each
    request, and a call may send several. Each method that waits may raise Retriable, Unreachable, NotAuthorized.
    """

    def cluster_id(self) -> str:
        """Returns the cluster id."""

    def start_offsets(self, parts: Iterable[Partition]) -> dict[Partition, int]:
        """Returns the first offset of each log. Raises RecordRejected if a partition does not exist."""

    def end_offsets(
        self, parts: Iterable[Partition], isolation: Isolation, timeout_s: float | None = None
    ) -> dict[Partition, int]:
        """Returns the offset after the last record of each log: the high watermark for READ_UNCOMMITTED, the last
        stable offset for READ_COMMITTED. Waits for at most `timeout_s`, if it is given. Raises RecordRejected if a
        partition does not exist."""

    def offset_for_time(self, part: Partition, timestamp_ms: int) -> int | None:
        """Returns the first offset whose record's timestamp is at or after `timestamp_ms`, or None if there is none."""

    def describe(self, topics: Iterable[str], config: Iterable[str] = ()) -> dict[str, TopicInfo]:
        """Returns the given topics that exist. While a topic is created or deleted, brokers differ for a moment: the
        topic is missing from the result if the broker that answers does not know it. `config` names the wanted
        settings. One request, or two if `config` names settings.

        A topic that these credentials may not describe is `TopicInfo(name, "", {}, {}, writable=False)`, even if it
        does not exist: the broker does not distinguish the two. If only the settings of a topic are hidden, its
        `config` is empty. Neither case affects the other topics. Raises NotAuthorized if the cluster refuses the
        credentials themselves.
        """

    def look_up(self, topics: Iterable[str], config: Iterable[str] = ()) -> Callable[[float], LookedUp]:
        """Requests the same as `describe`. The returned function waits for the answer for at most the given number of
        seconds, and returns None if it has not arrived. It raises as `describe`."""

    def topic_rights(self, topics: Iterable[str]) -> dict[str, frozenset[Operation]]:
        """Returns the operations that these credentials may perform on each existing topic: at most DESCRIBE_CONFIGS on
        a hidden topic, all operations on a cluster without ACLs. One or two requests. Raises as `describe`."""

    def group_rights(self, group_id: str) -> frozenset[Operation]:
        """Returns the operations that these credentials may perform on a consumer group, even if it does not exist.
        Returns an empty set if the group is hidden."""

    def create_topics(self, topics: Sequence[NewTopic]) -> list[str]:
        """Creates the topics that do not exist. Returns their names once their descriptions show a leader for each
        partition. Raises SettingRefused if the cluster refuses a setting, a partition count or a replication factor,
        and RecordRejected if it refuses a name or a policy forbids the topic."""

    def add_partitions(self, counts: Mapping[str, int]) -> None:
        """Increases each topic's partition count to the given total. Raises SettingRefused if that is not an
        increase."""

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Deletes the topics that exist."""

    def group_offset(self, group_id: str, part: Partition) -> int | None:
        """Returns the committed offset of a group for a partition, or None if there is none."""

    def group_note(self, group_id: str, part: Partition) -> str:
        """Returns the metadata of the committed offset of a partition, or "" if there is none."""

    def group_members(self, group_id: str) -> list[GroupMember]:
        """Returns the present members of a consumer group. The list is empty if the group is empty or unknown."""

    def assign_again(self, group_id: str, topic: str) -> None:
        """Makes a group of the protocol classic assign its partitions again: a member that reads `topic` joins and
        leaves. If no other member reads that topic, the other members keep their partitions. Returns after the admin
        time-out even if the group has not assigned its partitions by then."""

    def share_isolation(self, group_id: str) -> Isolation | None:
        """Returns the isolation level at which a share group (KIP-932) reads, whether it has members or not. Returns
        None if `group_id` names a consumer group (its members set their own levels), or if the brokers do not know this
        setting of groups. Two requests. Raises NotAuthorized without DescribeConfigs on the group."""

    def close(self) -> None:
        """Frees the client. A second call does nothing."""


class Kafka(Protocol):
    """One cluster: creates the clients above. Threads may share it. Creating a client does not wait for the network."""

    def connection_fault(self, over: Callable[[], bool]) -> KafkaFault | None:
        """Returns the reason why no broker can be reached. It is NotAuthorized if a broker refused the credentials, if
        one side refused the TLS handshake, or if every bootstrap address uses TLS and `security.protocol` does not, or
        the reverse. Otherwise it is Unreachable. Returns None if no reason is known after some seconds, or once `over`
        returns True."""

    def group_consumer(self, group_id: str, instance_id: str | None = None, address: str = "") -> GroupConsumer:
        """Returns a member that has not joined yet. `instance_id` makes it a static member. `address`, HOST:PORT,
        follows the `@` of its client id, which every client that may describe the group can read
        (`GroupMember.address`)."""

    def log_reader(self, part: Partition, offset: int, isolation: Isolation) -> LogReader:
        """Returns a reader whose first record is the one at `offset`, or the next one."""

    def producer(
        self, transactional_id: str, message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    ) -> TransactionalProducer:
        """Returns a producer that has not fenced older ones yet. `message_bytes_max`: the largest record that it may be
        given, which is the largest `max.message.bytes` of the topics that it serves."""

    def plain_producer(self, created_ms: int = 0) -> PlainProducer:
        """Returns an idempotent producer without transactions. `created_ms`: as in `TransactionalProducer.begin`."""

    def admin(self) -> Admin:
        """Returns a new admin client."""
