"""Bounds and defaults of the Kafka clients, each with its unit and the reason for its value."""

from __future__ import annotations

#: Milliseconds: how long the coordinator keeps a transaction open; also the budget for repeating a commit or an abort.
#: A transaction takes some milliseconds, so ten seconds pass only if something is wrong.
TRANSACTION_TIMEOUT_MS = 10_000

#: Milliseconds: how long a produced record may stay without its delivery report; far below the transaction time-out, so
#: that one unreachable partition ends a transaction and not the producer.
MESSAGE_TIMEOUT_MS = 2_000

#: Milliseconds: how long the client waits for an unknown topic to appear before it fails the record.
METADATA_PROPAGATION_MS_MAX = 1_000

#: Bytes: the broker's default of message.max.bytes. The client's default is smaller and would refuse records that came
#: through a request topic.
MESSAGE_BYTES_MAX = 1_048_588

#: Milliseconds without heartbeats after which a member loses its partitions; with the group protocol classic only.
SESSION_TIMEOUT_MS = 15_000

#: Milliseconds between two heartbeats, by which a member learns of a rebalance. A shard moves in two rebalances, and no
#: member serves it until the members have learned of the second. With the client's default of 3,000, that would take
#: seconds.
HEARTBEAT_INTERVAL_MS = 300

#: Milliseconds between two measurements of a member's connections: the usual interval of scrapes.
STATISTICS_INTERVAL_MS = 10_000

#: A member's client is replaced after this many measurements in a row in which it knew no broker.
REPORTS_WITHOUT_BROKERS_MAX = 2

#: Kilobytes: the prefetch queue of a consumer: some 100,000 small records, half of the client's default.
FETCHED_AHEAD_KB_MAX = 32_768

#: Kilobytes: the prefetch queue of a reader of one partition, which also bounds one read: eight takeovers may run at
#: once.
READ_AHEAD_KB_MAX = 4_096

#: Milliseconds: how long a consumer with a full prefetch queue waits before it fetches again; the default of 1 s makes
#: a faster reader idle.
FETCH_QUEUE_BACKOFF_MS = 20

#: Seconds: the interval at which a member takes records. Without it, a thousand single records a second would each cost
#: a round. A record that arrives after a pause of this length is taken at once.
GATHER_INTERVAL_S = 0.01

#: Milliseconds: the longest pause between attempts to reach a broker. With the client's 10 s, messages would be late
#: after a restart of the broker.
RECONNECT_BACKOFF_MS_MAX = 1_000

#: Milliseconds between two refreshes of a consumer's metadata, which names the leaders. With the library's default of 5
#: minutes, messages would be late after an election. A producer needs no refresh: it is replaced after a transaction
#: whose end was slow or unknown.
METADATA_REFRESH_MS = 5_000

#: Milliseconds: how long a consumer waits for the answer to a request before the library closes the connection. The
#: library sends every metadata request to the broker that it used last (librdkafka 2.16,
#: `rd_kafka_broker_weight_usable`); for a reader of one partition, that is the leader. If this broker freezes, it gets
#: all metadata requests until its connection closes. With the library's default of one minute, readers and members
#: continued 51 to 60 s after the election of another leader. With this value they continue within 10 s, after a
#: metadata refresh and a new connection.
CONSUMER_ANSWER_MS_MAX = 10_000

#: Bytes of one fetch: few enough to arrive within CONSUMER_ANSWER_MS_MAX over a slow line.
FETCH_SIZE_BYTES_MAX = 8 * 1024 * 1024

#: Seconds: how long an admin request may take.
ADMIN_TIMEOUT_S = 15.0

#: Milliseconds: how long a transactional client waits before it repeats a request whose connection broke, plus or minus
#: a fifth: long enough that the duration of a transaction's end shows whether it was requested twice.
REPEAT_AFTER_MS = 500

#: Seconds: a transaction whose end took longer than this may have left a delayed EndTxn in the network (protocol.md,
#: recycle). It is below four fifths of REPEAT_AFTER_MS, so that no repeated end is quicker, and above the duration of
#: an end on a busy machine.
SUSPICIOUS_END_S = 0.35

#: Seconds: how long a started partition may refuse its seek before it is assigned again.
SEEK_TIMEOUT_S = 1.0

#: Seconds: how long a partition may refuse its seek as too early before this is reported as an error, and the interval
#: of later reports. The first refusal for any other reason is reported immediately.
START_TIMEOUT_S = 30.0

#: The number of errors that a group consumer keeps between two calls of `errors`; a broker that is down causes many.
ERRORS_MAX = 1_000

#: Seconds between two checks for a changed password file: short enough that the client has the new password before an
#: operator revokes the old one.
SECRET_CHECK_INTERVAL_S = 10.0

#: Characters of the longest secret that is read from a file while a process runs.
SECRET_CHARS_MAX = 1024 * 1024

#: Seconds: the shortest interval between two checks by a reader whether ACLs hide its topic. Only a read that got no
#: record makes the check.
SILENCE_S = 3.0

#: Seconds: how long a member of the group protocol consumer waits for the coordinator before the delay is reported, and
#: the interval of later reports. A coordinator normally accepts a member within a second.
JOIN_TIMEOUT_S = 15.0
