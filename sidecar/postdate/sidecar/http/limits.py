"""Bounds of the HTTP side, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# A round of the poll loop waits for a hand-over (5 s) and for the coordinator to store a note. A round that takes much
# longer is stuck.
POLL_SILENCE_S_MAX: Final = 60.0

# A failed group client is replaced after at most 16 s. A process that has no new client after CLIENT_DEAD_S_MAX does
# not recover.
CLIENT_DEAD_S_MAX: Final = 60.0

# A takeover reads the changes since the previous takeover, which takes seconds. A much longer takeover is stuck, or
# rebuilds the index of a lost disk.
TAKEOVER_MS_MAX: Final = 300_000

# The interval of attempts to bind a port that is in use: on a restart, the previous process may still hold it.
HTTP_BIND_RETRY_S: Final = 5.0

# How long a request over HTTP waits until a shard has answered one slice, a query of bounded length. The shard answers
# between two transactions, and the Kafka client limits a transaction to about 10 s.
ANSWER_TIMEOUT_S: Final = 12.0

# The entries, the bytes and the keys that a shard reads in one slice between two dispatches: 1 to 2 ms of its time.
SLICE_ENTRIES_MAX: Final = 1_000
SLICE_SIZE_BYTES_MAX: Final = 1024 * 1024
SLICE_KEYS_MAX: Final = 4_000

# The entries on one page, and the entries that it examines in each shard: about 0.1 s of the shard's time in slices.
PAGE_ENTRIES_DEFAULT: Final = 100
PAGE_ENTRIES_MAX: Final = 1_000
PAGE_VISITED_MAX: Final = 50_000

# The dead letters that one query or requeue reads, the dead letters that one requeue sends, and the time for reading.
# The command has higher limits. A requeue also reads the requests since the oldest of its dead letters.
DEAD_LETTERS_MAX: Final = 10_000
DEAD_LETTERS_REQUEUED_MAX: Final = 1_000
DEAD_LETTERS_READ_S_MAX: Final = 20.0

# Targets that an answer lists for one group of dead letters.
TARGETS_SHOWN: Final = 20

# The keys that one count visits in each shard, or the entries if its filters need them. Beyond this bound the result is
# only a lower bound.
COUNTED_KEYS_MAX: Final = 1_000_000
COUNTED_ENTRIES_MAX: Final = 200_000

# How long one process counts the selected messages in all of its shards: ten million entries take 20 s.
SELECTED_S_MAX: Final = 20.0

# The dispatch-log records that one pass of the search for fates of a request reads, and the time of the pass. A search
# has at most two passes.
FATE_RECORDS_MAX: Final = 50_000
FATE_SEARCH_S_MAX: Final = 5.0

# The size of each of the two files of the log of actions: some 4,000 entries. The other bounds limit the parts of an
# entry that a client determines.
ACTIONS_FILE_SIZE_BYTES_MAX: Final = 1 << 20
ACTION_VALUES_MAX: Final = 20
ACTION_VALUE_LENGTH_MAX: Final = 300
ACTOR_LENGTH_MAX: Final = 100

# The body of a change: a handful of short fields.
HTTP_BODY_BYTES_MAX: Final = 16 * 1024

# The processes to which one query is forwarded concurrently, the number of concurrent queries that are forwarded (32
# threads at most in total), and how long a query waits for its turn.
PEERS_AT_ONCE_MAX: Final = 8
MERGED_AT_ONCE_MAX: Final = 4
MERGE_WAIT_S: Final = 5.0

# Members of the group that are queried: no deployment has more processes.
PEERS_MAX: Final = 256

# The shortest interval of queries to Kafka for the members of the group; a hand-over takes longer.
PEERS_AGE_S: Final = 2.0

# The time-outs of a connection to another process, and of its answer. A running process accepts a connection at once,
# and then waits up to ANSWER_TIMEOUT_S for a shard.
PEER_CONNECT_S: Final = 3.0
PEER_TIMEOUT_S: Final = 15.0

# The time for a query of all processes: shards that have not answered by then are listed in `not_asked`.
MERGED_TIMEOUT_S: Final = 25.0

# A change of holds waits for the poll loop, which a hand-over may delay, and for the group's coordinator.
HOLD_TIMEOUT_S: Final = 10.0

# The load ahead: the next hour by minutes and the next two days by hours, which fit a screen as columns.
LOADS: Final = ((60_000, 60), (3_600_000, 48))

# Connections that are open at one time. Each takes a descriptor, and RocksDB and Kafka's clients need descriptors too.
HTTP_CONNECTIONS_MAX: Final = 128

# Connections accepted in one iteration of the event loop: 1 to 3 ms.
HTTP_ACCEPTS_MAX: Final = 64

# Accepted connections that wait for their start (`acceptor`), each with a descriptor. A client that opens 4,000
# connections a second displaces them in 64 ms: by then the first bytes of a probe have arrived.
HTTP_WAITING_MAX: Final = 256

# The length of a turn, the connections that start in one turn, and the additional starts for probes. In total these are
# 800 starts a second, which take some 0.2 ms each.
HTTP_TURN_S: Final = 0.01
HTTP_STARTS_MAX: Final = 4
HTTP_PROBE_STARTS_MAX: Final = 4

# The pause after an accept that failed, for example for lack of descriptors or memory.
HTTP_ACCEPT_RETRY_S: Final = 1.0

# Connections that the kernel queues until they are accepted: beyond this, a client retries only after a second.
HTTP_QUEUE_MAX: Final = 2_048

# Requests other than probes that are answered at one time: more than the 40 threads, and half of the connections.
# One address may have half of them: the workers of one machine share an address, and each forwards four queries at a
# time.
HTTP_REQUESTS_MAX: Final = 64
HTTP_REQUESTS_PER_ADDRESS_MAX: Final = 32

# How long a client may take for a complete request: a few hundred bytes, or a body of HTTP_BODY_BYTES_MAX.
HTTP_REQUEST_S_MAX: Final = 10.0

# How long an answer may take in all: longer than MERGE_WAIT_S, MERGED_TIMEOUT_S and the transfer of a page over a slow
# line together.
HTTP_ANSWER_S_MAX: Final = 60.0

# How long the port waits until a client confirms the end of a TLS connection. Clients do so immediately.
HTTP_TLS_CLOSE_S: Final = 0.5

# How long a connection stays open between requests: a new connection costs scrapers and probes little.
HTTP_KEEP_ALIVE_S: Final = 5

# Request line and headers together; a cursor and a token are far shorter.
HTTP_HEAD_BYTES_MAX: Final = 16 * 1024

# A token shorter than the minimum could be guessed. Only the first TOKEN_FILE_BYTES_MAX bytes of the file are read.
TOKEN_CHARS_MIN: Final = 16
TOKEN_FILE_BYTES_MAX: Final = 4_096

# How long a signed request of another process is valid, before and after its time. The clocks of machines that share a
# Kafka cluster differ by much less. A receiver remembers at most NONCES_MAX changes, each for twice SIGNATURE_MS_MAX; a
# user makes a few changes a minute.
SIGNATURE_MS_MAX: Final = 30_000
NONCES_MAX: Final = 10_000

# How long the server may take to finish its answers when the process stops.
HTTP_STOP_S: Final = 3.0

# Bytes of keys, headers and values on one page, if they are shown.
PAGE_PAYLOAD_BYTES_MAX: Final = 8 * 1024 * 1024

# The largest answer that a client of the API reads, and the longest wait of the command line: longer than the process
# waits for its shards.
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
CLIENT_TIMEOUT_S: Final = 60.0

# Nominal times of a recurring schedule that an answer contains.
OCCURRENCES_SHOWN: Final = 10
