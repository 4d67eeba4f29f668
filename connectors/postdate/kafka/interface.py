"""The interface between Postdate and Kafka: all requests that the rest of the code sends to a cluster.

It has two implementations: one over confluent_kafka, in this package, and a simulated broker. Both pass the same suite
in `tests/contract`, so that results of the simulation hold for Kafka.

Rules for every method, unless its docstring states another:

- It raises only `errors.KafkaFault`, by consequence: the caller reacts to the class, never to a code.
- A `timeout_s` is how long it may block; methods without one do not wait for the network.
- An instance belongs to one thread at a time. Only Admin may be shared by threads.
- Callbacks run on the calling thread, inside `poll`, `settle`, `flush`, `commit` and `abort`.
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
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs of a partition


class Record(msgspec.Struct, frozen=True, gc=False):
    """One committed record of the log.

    `timestamp_ms` is -1 if the record has none; `log_append` is True if it is from the broker's clock. `headers` is an
    empty list if the record has none, and None if the client cannot read them (a name that is not UTF-8).
    """

    offset: int
    timestamp_ms: int
    log_append: bool
    key: bytes | None
    value: bytes | None
    headers: Headers | None


class Isolation(Enum):
    """The end of a log: of all appended records (high watermark), or of the decided ones (last stable offset)."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class TopicInfo(NamedTuple):
    """The cluster's description of a topic: `partitions` maps each index to whether it has a leader now; `config` has
    the requested settings that ACLs allow reading, all values as text; `writable` is False if ACLs forbid these
    credentials to write to it. A topic that ACLs hide has no topic id either (see `Admin.describe`).
    """

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
        """The HOST:PORT that it advertises after the last `@` of its client id; empty if there is none."""
        address = self.client_id.rpartition("@")[2]
        is_one = _ADDRESS.fullmatch(address) and 0 < int(address.rpartition(":")[2]) < 65_536
        return address if is_one else ""


class GroupListener(Protocol):
    """Receives rebalances. Called inside `GroupConsumer.poll` or `close`, on that thread; must return soon (well below
    the poll interval, 5 min) and must not raise. Never called with no partition at all."""

    def assigned(self, parts: Sequence[Partition]) -> None:
        """These partitions are ours now, in addition; they are paused and silent until `start` is called for each."""

    def revoked(self, parts: Sequence[Partition]) -> None:
        """These are ours until this returns: the last chance to commit and to release them gracefully."""

    def lost(self, parts: Sequence[Partition]) -> None:
        """These are no longer ours, and another member may already have them: stop at once; do not wait for
        anything."""


class GroupConsumer(Protocol):
    """A member of a consumer group on the request topics: read_committed, cooperative, without automatic commits.

    All methods belong to the poll thread.
    """

    def subscribe(self, topics: Sequence[str], listener: GroupListener) -> None:
        """Joins the group for these topics; assignments arrive through `listener` during later polls. Does not wait."""

    def poll(self, records_max: int, timeout_s: float) -> list[tuple[Partition, list[Record]]]:
        """Serves callbacks and returns up to `records_max` records, grouped by partition, each group in offset order
        with rising offsets (gaps are markers, aborted or compacted records).

        Blocks until a record arrives or `timeout_s` has passed; an empty list is no error. Never returns a record of
        a paused partition, nor one before the offset given to the last `start`. Partition errors are not raised here:
        they wait in `errors`. Raises FatalClient, Fenced if another client replaced this static member, NameInUse if
        another one has its static name, OtherProtocol, NotAuthorized, and UnsupportedByBroker, whichever call or
        callback met that error. From then on the client holds nothing, every poll raises and the listener is not
        called: the caller closes it and makes a new one.
        """

    def errors(self) -> list[tuple[Partition | None, KafkaFault]]:
        """Returns the errors met since the last call, drained: with their partition, or None for those of the whole
        client."""

    def start(self, part: Partition, offset: int) -> None:
        """From the next poll on, records of an assigned partition arrive, beginning at `offset` (or at the first
        record behind it). Also moves a started partition, and ends its pause. Raises KafkaFault if the partition is not
        assigned."""

    def pause(self, parts: Iterable[Partition]) -> None:
        """No record of these arrives until `resume`; nothing is skipped. Partitions that are not assigned are
        ignored."""

    def resume(self, parts: Iterable[Partition]) -> None:
        """Continues where `pause` stopped. Partitions that are not assigned are ignored."""

    def commit(self, offsets: Mapping[Partition, int], notes: Mapping[Partition, str] | None = None) -> None:
        """Publishes group offsets for lag tools; asynchronous; a failure is only logged: nothing resumes from them.
        `notes`: the metadata of the offsets (`Admin.group_note`); a partition without a note has none from then on."""

    def commit_note(self, part: Partition, offset: int, note: str) -> None:
        """When it returns, the group has stored `note` and this offset for an assigned partition, and every later owner
        reads it. Blocks while the client retries. Raises Fenced or another KafkaFault if it may not be stored: this
        member has lost the partition, or the coordinator does not answer."""

    def leave(self) -> None:
        """Gives all partitions back during the next polls and leaves the group. A static member leaves for good with
        the group protocol classic; with consumer, others get its partitions when its session has timed out."""

    def committed(self, parts: Sequence[Partition], timeout_s: float) -> dict[Partition, int | None]:
        """Returns the group's committed offset of each, None if there is none. Blocks. Raises Unreachable,
        NotAuthorized."""

    def positions(self, parts: Sequence[Partition]) -> dict[Partition, int]:
        """Returns the offset of the next record that `poll` may return of each, past markers and aborted records;
        without those of which nothing was fetched yet, and that are not assigned. Does not wait."""

    def confirm(self, parts: Sequence[Partition], timeout_s: float) -> frozenset[Partition]:
        """Returns those of `parts` that this member holds according to the coordinator, by one request. Empty if the
        request fails, and while the group rebalances. It commits nothing: a takeover reads a committed offset as the
        sign of an earlier owner. Blocks, and opens a connection for this one request; the only method that may run on
        another thread beside the poll thread."""

    def assignment(self) -> frozenset[Partition]:
        """Returns the present assignment of this member, according to the library."""

    def member_id(self) -> str:
        """Returns the id the coordinator gave this member; empty before the first join."""

    def statistics(self) -> tuple[BrokerStatistics, ...]:
        """Measurements of the connections to the brokers, updated every few seconds; empty before the first, and if
        nothing is measured. Does not wait."""

    def close(self) -> None:
        """Leaves the group (a static member does not), and calls `revoked` for the partitions still held. Blocks for
        at most some seconds. Raises KafkaFault if the client fails while it leaves; it is closed all the same. Calling
        it again does nothing."""


class LogReader(Protocol):
    """Reads one partition from a given offset, without a group, with the isolation it was made with."""

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        """Returns up to `records_max` records in offset order; blocks until at least one is there or `timeout_s` has
        passed. Empty means only that nothing came in time: compare `position` with the end that is wanted. If the
        partition's leader freezes and another broker leads, reading continues within 30 s from then.

        Raises OffsetOutOfRange if the position is not in the log (there is no automatic reset), Unreachable only if
        the client has given up, NotAuthorized, FatalClient.
        """

    def position(self) -> int:
        """Returns the offset of the next record that `read` may return: everything below it has been returned or does
        not exist for this isolation. Passes transaction markers and aborted records, also when they are last; with
        READ_COMMITTED it stops at the first record of a foreign open transaction. It moves only inside `read`."""

    def close(self) -> None:
        """Frees the client. Calling it again does nothing."""


class TransactionalProducer(Protocol):
    """One producer with a transactional id. Owned by one shard thread, which makes it, uses it, and destroys it.

    Order of calls: `init`, then any number of { `settle`, `begin`, `produce`..., `flush`, `commit` or `abort` }.
    """

    def init(self, timeout_s: float, topic: str = "") -> None:
        """When it returns, every older producer with this id is fenced and its open transaction has ended, committed or
        aborted. `topic`: an existing one, by which the client learns its brokers first; that is faster. Repeats while
        retriable until `timeout_s` has passed. Raises Retriable or Unreachable (call again on the same instance),
        NotAuthorized, Fenced, FatalClient."""

    def begin(self, created_ms: int = 0) -> None:
        """Opens a transaction; local, does not wait. Raises Fenced, FatalClient.

        `created_ms`: the CreateTime of its records, epoch ms; 0: the time of the local clock for each. Brokers refuse
        records that are stamped more than `message.timestamp.after.max.ms` ahead of them, an hour since Kafka 4.
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
        """Hands one record to the client, for a topic that is writable: *measured*, a topic that ACLs forbid fails the
        whole transaction, no report names it, and `abort` may end in FatalClient. Partition -1: murmur2 of the key as
        Java does, any partition for a null key.

        Does not wait for the network, unless the client's queue is full: then it serves callbacks and waits, bounded
        by the message time-out. Raises RecordRejected if the record can be refused at once (too large, no such
        partition), Retriable if the queue stays full, Fenced, FatalClient. A later failure shows in `on_delivery`,
        if given, and in `commit`.
        """

    def flush(self, timeout_s: float) -> int:
        """Waits until every record has its delivery report, and serves them; returns how many are still without.

        Raises what `commit` would raise as soon as the transaction has failed and reports stop coming: the client sends
        nothing more of it, and the other records would wait for the message time-out."""

    def commit(self) -> None:
        """When it returns, the transaction is committed. Waits as long as that takes (the caller may have a
        watchdog), and repeats retriable errors until the transaction time-out is used up. Raises AbortRequired (no
        part of it will ever be visible: call `abort`), as RecordRejected if single records were refused (`on_delivery`
        reports them and the reasons), UnknownOutcome, Fenced, FatalClient. After the last three it may be committed or
        not."""

    def abort(self) -> None:
        """When it returns, the transaction is aborted. Waits and repeats as `commit` does. Raises UnknownOutcome, also
        if the coordinator refuses the abort; Fenced; and FatalClient, which is to be expected after records have timed
        out: the coordinator may refuse to end a transaction that it has given up itself. Never raises AbortRequired.
        After any of these, destroy this producer and fence again: no transaction without a commit request can commit,
        and the log shows the outcome of one with a commit request."""

    def settle(self) -> bool:
        """Serves all callbacks; True if the next transaction may begin on this producer.

        False: the end of the last transaction took so long that it may have been requested twice, or a connection is
        known to have failed since it began. A delayed EndTxn might then still be under way and decide the *next*
        transaction (KAFKA-17754): destroy this producer and fence again.
        """

    def destroy(self) -> None:
        """Drops the client without waiting for what is in flight; an open transaction is left to the next `init` or
        to the transaction time-out. Calling it again does nothing."""


class PlainProducer(Protocol):
    """An idempotent producer without transactions, for the command line and for tests."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """As TransactionalProducer.produce."""

    def flush(self, timeout_s: float) -> int:
        """As TransactionalProducer.flush."""

    def destroy(self) -> None:
        """Drops the client and what it has not sent. Calling it again does nothing."""


class Admin(Protocol):
    """Queries and changes of the cluster. May be shared by threads.

    Every method waits for the cluster, bounded by `request_timeout_s` of the settings, and may raise Retriable,
    Unreachable, NotAuthorized.
    """

    def cluster_id(self) -> str:
        """Returns the cluster id."""

    def start_offsets(self, parts: Iterable[Partition]) -> dict[Partition, int]:
        """Returns the first offset of each log. Raises RecordRejected if a partition does not exist."""

    def end_offsets(
        self, parts: Iterable[Partition], isolation: Isolation, timeout_s: float | None = None
    ) -> dict[Partition, int]:
        """Returns the offset behind the last record: READ_UNCOMMITTED, the high watermark; READ_COMMITTED, the last
        stable offset. Waits for at most `timeout_s`, if it is given. Raises RecordRejected if a partition does not
        exist."""

    def offset_for_time(self, part: Partition, timestamp_ms: int) -> int | None:
        """Returns the first offset whose record's timestamp is at or after `timestamp_ms`; None if there is none."""

    def describe(self, topics: Iterable[str], config: Iterable[str] = ()) -> dict[str, TopicInfo]:
        """Returns those of these topics that exist. While one is created or deleted, brokers differ for a moment: it is
        missing if one of those that answer does not know it. `config` names the wanted settings; without names, one
        request is saved and `config` of the answer is empty. One or two requests in all.

        A topic that these credentials may not describe is `TopicInfo(name, "", {}, {}, writable=False)`, even if it
        does not exist: the broker does not distinguish the two. If only its settings are hidden, `config` is empty.
        Neither fails the others. Raises NotAuthorized for the credentials as a whole.
        """

    def look_up(self, topics: Iterable[str], config: Iterable[str] = ()) -> Callable[[float], LookedUp]:
        """Requests the same as `describe`; the returned function waits for the answer for a number of seconds, and
        raises as `describe`."""

    def topic_rights(self, topics: Iterable[str]) -> dict[str, frozenset[Operation]]:
        """Returns the operations that these credentials may perform on each existing topic: at most DESCRIBE_CONFIGS on
        a hidden one, all on a cluster without ACLs. One or two requests. Raises as `describe`."""

    def group_rights(self, group_id: str) -> frozenset[Operation]:
        """Returns the operations that these credentials may perform on a consumer group, existing or not; empty if it
        is hidden."""

    def create_topics(self, topics: Sequence[NewTopic]) -> list[str]:
        """Creates those that do not exist, and returns the names that it created, when every broker asked has
        them. Raises SettingRefused if the cluster refuses a setting, a replication factor or a name."""

    def add_partitions(self, counts: Mapping[str, int]) -> None:
        """Increases each topic's partition count to the given total. Raises SettingRefused if that is not an
        increase."""

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Deletes those that exist."""

    def group_offset(self, group_id: str, part: Partition) -> int | None:
        """Returns the committed offset of a group for a partition, None if there is none."""

    def group_note(self, group_id: str, part: Partition) -> str:
        """Returns the metadata of the committed offset of a partition; empty if there is none."""

    def group_members(self, group_id: str) -> list[GroupMember]:
        """Returns the present members of a consumer group; empty if the group is empty or unknown."""

    def assign_again(self, group_id: str, topic: str) -> None:
        """Makes a group of the protocol classic assign its partitions again: a member that reads `topic` joins and
        leaves. If no other member reads that topic, the others keep their partitions. Returns after the admin time-out
        even if the group has not done so."""

    def share_isolation(self, group_id: str) -> Isolation | None:
        """Returns the isolation level at which a share group (KIP-932) reads, whether it has members or not. None if
        `group_id` names a consumer group, whose members set theirs, or if the brokers know no isolation level of
        groups. Two requests. Raises NotAuthorized without DescribeConfigs on the group."""

    def close(self) -> None:
        """Frees the client. Calling it again does nothing."""


class Kafka(Protocol):
    """One cluster: makes the clients above. May be shared by threads; making a client does not wait for the network."""

    def connection_fault(self, over: Callable[[], bool]) -> KafkaFault | None:
        """Returns the reason why no broker can be reached: NotAuthorized if a broker refused the credentials or the TLS
        handshake, or if every bootstrap address answers with TLS although `security.protocol` is without it, or the
        reverse; Unreachable otherwise. None if nothing is known in some seconds, or once `over` is true. From any
        thread."""

    def group_consumer(self, group_id: str, instance_id: str | None = None, address: str = "") -> GroupConsumer:
        """Returns a member that has not joined yet; `instance_id` makes it a static one. `address`, HOST:PORT, follows
        the `@` of its client id, which every client that may describe the group can read (`GroupMember.address`)."""

    def log_reader(self, part: Partition, offset: int, isolation: Isolation) -> LogReader:
        """Returns a reader whose first record is the one at `offset`, or the next one."""

    def producer(
        self, transactional_id: str, message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    ) -> TransactionalProducer:
        """Returns a producer that has fenced nobody yet. `message_bytes_max`: the largest record that it may be given,
        which is the largest `max.message.bytes` of the topics that it serves."""

    def plain_producer(self, created_ms: int = 0) -> PlainProducer:
        """Returns an idempotent producer without transactions. `created_ms`: as in `TransactionalProducer.begin`."""

    def admin(self) -> Admin:
        """Returns a new admin client."""
