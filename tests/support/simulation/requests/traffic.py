"""Requests of every kind with their intended outcome, with which the judges compare the result.

The intended outcome is recorded when a request is sent, and does not come from the code that reads requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from random import Random

from postdate.kafka.interface import Headers, Partition, Record
from support.kafka_simulator import SimBroker
from support.simulation.requests.bulk import BULK, Selected, make_bulk
from support.simulation.requests.recurring import Recurrences
from support.simulation.requests.returns import Returned, make_return, settle
from support.simulation.runtime.settings import LEVELS_MS

REQUESTS = "requests"
#: Target -> partitions. `small` accepts only small records, `secret` refuses every client, `compacted` accepts no
#: record without a key, `later` is created during the run.
TARGETS = {"orders": 1, "mails": 3, "small": 1, "secret": 1, "later": 2, "compacted": 1}
NOWHERE = "nowhere"
SMALL_BYTES_MAX = 400
WINDOWS_MS = (1, 300, 2_000, 6_000)
#: Milliseconds: the maximum time between the first request of a series and its due time.
LATEST_MS = (1, 400, 3_000, 8_000)
#: Producer ids from this one on belong to foreign clients.
STRANGERS_FROM = 900_000


@dataclass
class SimulatedRequest:
    """One request: `action` is schedule, cancel, reschedule or bad. `dead` contains the reasons for which the request
    may become a dead letter; with `must_die` it may not end in any other way. `level`: the delay level of a time given
    by level; 0: none. `foreign`: the request has another scheduler's headers."""

    part: Partition
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers | None = field(default_factory=list)
    action: str = "schedule"
    target: str = ""
    target_key: bytes | None = None
    delay_ms: int = 0
    id: bytes = b""
    names: int = -1
    level: int = 0
    foreign: bool = False
    target_partition: int = -1
    grace_ms: int = -1
    window_ms: int = 0
    keeps: bool = False
    drops: bool = False
    latest_ms: int = 0
    series_ms: int = -1
    """The start of the series that the request continues, from the dispatch log; -1: the request begins a series."""
    dead: frozenset[str] = frozenset()
    must_die: bool = False
    returned: Returned | None = None
    selected: Selected | None = None
    offset: int = -1
    appended_ms: int = -1

    @property
    def due_ms(self) -> int:
        """The first due time, or the new due time of a reschedule, with the default levels."""
        return self._limited(self.appended_ms + self.delay_ms)

    @property
    def start_ms(self) -> int:
        """The start of the request's series."""
        return self.series_ms if self.series_ms >= 0 else self.appended_ms

    def _limited(self, due_ms: int) -> int:
        return min(due_ms, self.start_ms + self.latest_ms) if self.latest_ms else due_ms

    def due_at(self, levels_ms: tuple[int, ...]) -> int:
        """Returns `due_ms` for other levels; a level above the last counts as the last."""
        return self._limited(self.requested_at(levels_ms))

    def requested_at(self, levels_ms: tuple[int, ...]) -> int:
        """Returns `due_at` without the limit of a series."""
        delay_ms = levels_ms[min(self.level, len(levels_ms)) - 1] if self.level else self.delay_ms
        return self.appended_ms + delay_ms

    @property
    def data_headers(self) -> Headers:
        """The headers that are not Postdate's."""
        return [pair for pair in self.headers or [] if not pair[0].lower().startswith("postdate-")]


class SimulatedTraffic:
    """Sends requests and stores them: `requests` by partition and offset."""

    def __init__(
        self, broker: SimBroker, random: Random, partitions: int, theme: str = "", differ: bool = False
    ) -> None:
        """`theme`: decides which kinds are frequent. `differ`: some requests are in the headers of another scheduler,
        which not every process accepts."""
        self.bulks: Random | None = None  # draws the selectors of bulk controls; None: there are none
        self.moves_in_bulk = False  # most bulk controls move messages, and messages stay pending for some time
        self.windows: Random | None = None  # draws the windows of messages; None: none has one
        self.drops: Random | None = None  # draws requests with `drop`; None: there are none
        self.ended_window_ms = 3_600_000
        self.policies: Random | None = None  # draws policies of ids; None: none has one
        self.requests: dict[tuple[int, int], SimulatedRequest] = {}
        self.recurrences = Recurrences(broker, Random(f"{random.getstate()[1][4:8]}"), partitions)
        self._by_id: defaultdict[tuple[int, bytes], list[SimulatedRequest]] = defaultdict(list)
        self._by_name: defaultdict[tuple[int, int], list[SimulatedRequest]] = defaultdict(list)
        self._bulks: list[SimulatedRequest] = []
        self.unsent = 0
        self.names_policies = True
        self._returns = Random(f"{random.getstate()[1][:4]}")  # drawing here changes nothing else of a run
        self.is_last = False  # no request with a long delay is sent any more
        self._broker = broker
        self._random = random
        self._partitions = partitions
        self._count = 0
        self._strangers = 0
        controls = {"controls": 4, "store": 2}.get(theme, 1)
        self._moves, self._ids = theme == "moves", theme == "ids"
        self._kinds: list[tuple[int, Callable[[SimulatedRequest], None]]] = [
            (40, self._plain),
            (60 if theme == "ids" else 12 * controls, self._with_id),
            (14 * controls, self._control_by_id),
            (9 * controls, self._control_by_origin),
            (30 if theme == "store" else 0, self._long),
            (12 if theme == BULK else 0, self._bulk),
            (25 if theme == "windows" else 5, self._with_grace),
            (10 if differ else 0, self._foreign),
            (8, self._malformed),
            (4, self._troubled),
        ]

    def last_due_ms(self) -> int:
        """The latest time at which any message may be due."""
        last_ms = max((request.due_ms + request.window_ms for request in self.requests.values()), default=0)
        return max(last_ms, self.recurrences.last_due_ms())

    def origins(self) -> Set[tuple[int, int]]:
        """Returns partition and offset of every request."""
        return self.requests.keys() | self.recurrences.requests.keys()

    def send_plain(self, index: int) -> None:
        """Sends one plain request to a partition, due within half a second."""
        request = SimulatedRequest(Partition(REQUESTS, index), b"k", b"encore", [], target="orders", target_key=b"k")
        request.delay_ms = self._random.randrange(500)
        request.headers = [("postdate-topic", b"orders"), ("postdate-delay", b"%d" % request.delay_ms)]
        self.append(request)

    def send(self) -> None:
        """Sends one request of a random kind, sometimes in a transaction that is aborted."""
        choose = self._random
        request = SimulatedRequest(Partition(REQUESTS, choose.randrange(self._partitions)))
        if not self._broker.serves(self._broker.topics[REQUESTS].logs[request.part.index]):
            self.unsent += 1
            self._broker.time.at(self._broker.time.now_ms + 500.0, self._send_again)  # as any client would
            return
        self._count += 1
        request.key = choose.choice([None, b"", b"k%d" % choose.randrange(4)])
        request.value = choose.choice([None, b"", b"message %d" % self._count])
        request.headers = [("traceparent", b"00-%d" % self._count)] if choose.random() < 0.5 else []
        if choose.random() < 0.1:
            request.headers += [("same", None), ("same", b"\xff\x00")]
        request.target_key = request.key
        weights, kinds = zip(*self._kinds, strict=True)
        kind = choose.choices(kinds, weights)[0]
        if self._moves and choose.random() < 0.8:  # some messages first, then controls that move them repeatedly
            kind = self._control_by_id if self._window() % 2 else self._with_id
        if self.moves_in_bulk and choose.random() < 0.8:
            kind = self._bulk if self._window() % 2 and choose.random() < 0.5 else self._plain
        if self.is_last and kind == self._long:
            kind = self._plain
        kind(request)
        if kind == self._plain and self._returns.random() < 0.3 and not request.window_ms:
            make_return(request, self._returns, self.names_policies)
        if kind == self._control_by_origin and self.bulks is not None and self.bulks.random() < 0.3:
            self._bulk(request)
        if choose.random() < 0.04:
            self._send_aborted(request)
        else:
            self.append(request)

    def _window(self) -> int:
        """Returns the number of the present interval of two seconds."""
        return int(self._broker.time.now_ms // 2_000)

    def append(self, request: SimulatedRequest) -> None:
        """Sends a request unchanged, and stores it."""
        request.offset, request.appended_ms = self._broker.append(
            request.part, request.key, request.value, request.headers, 0
        )
        self.requests[request.part.index, request.offset] = request
        if request.returned is not None and not request.returned.name:
            settle(request, ())
        if request.selected is not None:
            self._bulks.append(request)
        if request.id:
            self._by_id[request.part.index, request.id].append(request)
        if request.names >= 0:
            self._by_name[request.part.index, request.names].append(request)

    def of_id(self, request: SimulatedRequest) -> list[SimulatedRequest]:
        """Returns the requests of its partition with its id, in order; none if it has no id."""
        return self._by_id.get((request.part.index, request.id), [])

    def followers(self, request: SimulatedRequest) -> list[SimulatedRequest]:
        """Returns the later requests that have the id of this one or name its offset, in order."""
        named = self._by_name.get((request.part.index, request.offset), [])
        found = {each.offset: each for each in (*self.of_id(request), *named) if each.offset > request.offset}
        return [found[offset] for offset in sorted(found)]

    def has_bulk_after(self, request: SimulatedRequest) -> bool:
        """True if a bulk control of its partition follows a request."""
        return any(other.part == request.part and other.offset > request.offset for other in self._bulks)

    def _send_again(self) -> None:
        self.unsent -= 1
        self.send()

    def open_foreign(self, part: Partition, headers: Headers) -> Callable[[bool], None]:
        """Writes to a log in a foreign transaction; returns a function that commits or aborts the transaction."""
        self._strangers += 1
        producer, log = STRANGERS_FROM + self._strangers, self._broker.log(part)
        log.append(Record(-1, self._broker.now_ms(), True, None, b"a stranger's", headers), producer, 0)

        def end(commit: bool) -> None:
            log.mark(producer, 0, commit, self._broker.now_ms())

        return end

    def _send_aborted(self, request: SimulatedRequest) -> None:
        end = self.open_foreign(request.part, request.headers or [])
        self._broker.time.at(self._broker.time.now_ms + self._random.choice([0.0, 5.0, 800.0]), lambda: end(False))

    # ---- kinds -----------------------------------------------------------------------------------------------------

    def _timed(self, request: SimulatedRequest) -> None:
        """Gives the request a time in a random form."""
        choose = self._random
        headers = request.headers
        assert headers is not None
        way = choose.randrange(4)
        if self._moves or self.moves_in_bulk:  # messages must stay pending for some time
            request.delay_ms = choose.randrange(5_000, 15_000)
            headers.append(("postdate-delay", b"%d" % request.delay_ms))
        elif self._ids and choose.random() < 0.6:  # due while other requests of its id arrive
            request.delay_ms = choose.randrange(3_000)
            headers.append(("postdate-delay", b"%d" % request.delay_ms))
        elif way == 0:
            request.delay_ms = choose.choice([0, 1, choose.randrange(400), choose.randrange(15_000)])
            headers.append(("postdate-delay", b"%d" % request.delay_ms))
        elif way == 1:
            seconds = choose.randrange(12)
            request.delay_ms = seconds * 1000
            headers.append(("postdate-delay", b"%ds" % seconds))
        elif way == 2:
            request.level = level = choose.randrange(1, 6)
            request.delay_ms = LEVELS_MS[min(level, len(LEVELS_MS)) - 1]
            headers.append(("postdate-level", b"%d" % level))
        else:
            request.delay_ms = choose.randrange(-5_000, 12_000)
            log = self._broker.topics[REQUESTS].logs[request.part.index]
            headers.append(("postdate-at", b"%d" % (self._broker.now_ms(log) + request.delay_ms)))

    def _long(self, request: SimulatedRequest) -> None:
        """Makes the request due 20 minutes to two hours later: after the end of the run, and sometimes after the
        retention of the request."""
        assert request.headers is not None
        request.target = "orders"
        minutes = self._random.choice([20, 50, 120])
        request.delay_ms = minutes * 60_000
        request.headers += [("postdate-topic", b"orders"), ("postdate-delay", b"%dm" % minutes)]
        if self._random.random() < 0.5:
            self._identify(request)
            self._choose_policy(request, minutes=True)

    def _plain(self, request: SimulatedRequest, target: str = "") -> None:
        choose = self._random
        headers = request.headers
        assert headers is not None
        request.target = target or choose.choice(["orders", "mails"])
        headers.append(("postdate-topic", request.target.encode()))
        self._timed(request)
        if self.windows is not None and self.windows.random() < 0.6:
            request.window_ms = self.windows.choice(WINDOWS_MS)
            headers.append(("postdate-window", b"%dms" % request.window_ms))
            if self.windows.random() < 0.5:
                headers.append(("postdate-spread", b"even"))
        if choose.random() < 0.15:
            request.target_key = b"other key"
            headers.append(("postdate-key", b"other key"))
        if choose.random() < 0.1:
            request.target_partition = 0
            headers.append(("postdate-partition", b"0"))

    def _with_id(self, request: SimulatedRequest) -> None:
        self._plain(request)
        self._identify(request)
        self._choose_policy(request)

    def _choose_policy(self, request: SimulatedRequest, minutes: bool = False) -> None:
        """Chooses the policy for a pending message of its id, and the maximum duration of a series."""
        choose = self.policies
        if choose is None:
            return
        assert request.headers is not None
        drawn = choose.random()
        if drawn < 0.35:
            request.keeps = drawn < 0.3
            request.headers.append(("postdate-if-pending", b"keep" if request.keeps else b"replace"))
        if not request.keeps and choose.random() < 0.7:
            request.latest_ms = choose.choice(LATEST_MS) * (600 if minutes else 1)
            request.headers.append(("postdate-latest", b"%dms" % request.latest_ms))
        if self.drops is not None and self.drops.random() < 0.5:
            request.drops = True
            request.headers.append(("postdate-if-ended", b"drop"))

    def _identify(self, request: SimulatedRequest) -> None:
        assert request.headers is not None
        request.id = b"id-%d" % self._random.randrange(4)
        if self._moves:
            request.id = b"id-%d-%d" % (self._window() // 2, self._random.randrange(2))
        request.headers.append(("postdate-id", request.id))

    def _control(self, request: SimulatedRequest) -> None:
        assert request.headers is not None
        request.action = self._random.choice(["cancel", *["reschedule"] * (7 if self._moves else 1)])
        request.headers.append(("postdate-action", request.action.encode()))
        if request.action == "reschedule":
            self._timed(request)

    def _control_by_id(self, request: SimulatedRequest) -> None:
        self._control(request)
        self._identify(request)

    def _control_by_origin(self, request: SimulatedRequest) -> None:
        assert request.headers is not None
        self._control(request)
        here = [offset for index, offset in self.requests if index == request.part.index]
        request.names = self._random.choice(here[-8:] or [0])
        if self._random.random() < 0.15:  # the control names itself or a later request, so it finds nothing
            request.names = self._broker.topics[REQUESTS].logs[request.part.index].end + self._random.randrange(4)
        request.headers.append(("postdate-origin", f"{REQUESTS}/{request.part.index}/{request.names}".encode()))

    def _bulk(self, request: SimulatedRequest) -> None:
        assert self.bulks is not None
        now_ms = self._broker.now_ms(self._broker.topics[REQUESTS].logs[request.part.index])
        make_bulk(request, self.bulks, now_ms, 0.9 if self.moves_in_bulk else 0.25)

    def _with_grace(self, request: SimulatedRequest) -> None:
        assert request.headers is not None
        self._plain(request)
        request.grace_ms = self._random.choice([0, 200, 5_000])
        request.headers.append(("postdate-grace", b"%d" % request.grace_ms))
        request.dead = frozenset({"expired"})

    def _foreign(self, request: SimulatedRequest) -> None:
        """Gives the request the headers of RabbitMQ's plug-in for delayed messages."""
        assert request.headers is not None
        request.foreign, request.delay_ms = True, self._random.randrange(4_000)
        request.headers.append(("x-delay", b"%d" % request.delay_ms))

    def _malformed(self, request: SimulatedRequest) -> None:
        request.action, request.must_die = "bad", True
        topic, delay = ("postdate-topic", b"orders"), ("postdate-delay", b"1s")
        reason, headers = self._random.choice(
            [
                ("missing-target", [delay]),
                ("missing-time", [topic]),
                ("conflicting-time", [topic, delay, ("postdate-level", b"1")]),
                ("bad-time", [topic, ("postdate-delay", b"soon")]),
                ("bad-time", [topic, ("postdate-at", b"99999999999999999999")]),
                ("bad-level", [topic, ("postdate-level", b"-1")]),
                ("unknown-header", [topic, delay, ("postdate-tpoic", b"x")]),
                ("duplicate-header", [topic, delay, delay]),
                ("forbidden-target", [("postdate-topic", REQUESTS.encode()), delay]),
                ("forbidden-target", [("postdate-topic", b"__consumer_offsets"), delay]),
                ("beyond-horizon", [topic, ("postdate-delay", b"9000d")]),
                ("missing-id", [("postdate-action", b"cancel")]),
                ("bad-action", [topic, delay, ("postdate-action", b"explode")]),
                ("bad-headers", None),
            ]
        )
        request.dead = frozenset({reason})
        request.headers = headers if headers is None else [*(request.headers or []), *headers]

    def _troubled(self, request: SimulatedRequest) -> None:
        """Turns the request into a valid one for a target that has a fault."""
        assert request.headers is not None
        kind = self._random.choice(["nowhere", "later", "secret", "small", "partition", "compacted"])
        if kind == "partition":
            request.target = "mails"
            request.headers += [("postdate-topic", b"mails"), ("postdate-partition", b"17"), ("postdate-delay", b"2s")]
            request.delay_ms, request.must_die, request.dead = 2_000, True, frozenset({"bad-partition"})
            return
        self._plain(request, NOWHERE if kind == "nowhere" else kind)
        if kind == "small":
            request.value = bytes(SMALL_BYTES_MAX)
            request.must_die, request.dead = True, frozenset({"too-large"})
        elif kind == "compacted":
            if request.target_key is None:
                request.must_die, request.dead = True, frozenset({"bad-key"})
        elif kind == "secret":
            request.must_die, request.dead = True, frozenset({"unauthorized"})
        elif kind == "nowhere":
            request.must_die, request.dead = True, frozenset({"unknown-target"})
