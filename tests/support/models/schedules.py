"""Explicit-state model of recurring schedules: docs/protocol.md, "Schedules".

The model assumes the core of the protocol. A transaction is atomic. A takeover is one atomic step, since no other
process can append to the dispatch log after the fence. The model explores the layer above: the state of a schedule in
the index, in marks, in STORE and in the log; crashes with a restart from any earlier disk or from none; controls that
race an occurrence; extra deliveries; and two members whose time zone rules differ.

Abstractions: one shard; request 0 is a schedule, and the other requests are its controls. The clock is a small integer.
Each version of the time zone rules has a tuple of the schedule's nominal times; the next nominal time follows from the
last one. A crash sets the memory of an instance back to its disk, which may be any earlier state, or empty.

Each rule is a flag. If all rules hold, every check passes; without any one of them, a check finds a counter-example.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from support.models.schedule_worlds import (
    CANCEL,
    CANCELLED,
    DELIVER,
    EXTRA,
    INFINITE,
    NONE,
    PAUSE,
    RESUME,
    SCHEDULE,
    STORE,
    Extra,
    Instance,
    Memory,
    ModelEntry,
    ModelFate,
    ModelLog,
    ModelMark,
    ModelRequest,
    ModelState,
    ScheduleWorld,
    Switch,
)

Late = Literal["all", "last"]


@dataclass(frozen=True)
class Rules:
    """The rules under test; the defaults are those of the protocol."""

    next_from_fate: bool = True  # a fate contains the next due time; False: each reader computes it
    first_from_stored: bool = True  # `stored` publishes the first due time
    marks_number: bool = True  # marks keep the number and the next due time
    store_in_transaction: bool = True  # False: STORE is rewritten after the commit, or not at all
    tombstone: bool = True  # `completed` removes the record of STORE
    advance_after_commit: bool = True  # False: the entry advances before its transaction is committed
    next_from_nominal: bool = True  # False: the next due time follows from the current time
    skips_in_log: bool = True  # False: missed occurrences are skipped without a fate
    paused_until_resume: bool = True  # False: a paused occurrence is skipped as soon as it is due
    pauses_in_log: bool = True  # False: a pause or a resume is applied only in the index
    pauses_in_marks: bool = True  # marks keep pauses and resumes
    pauses_in_store: bool = True  # the record in STORE contains them
    pauses_added_once: bool = True  # False: a replay adds pauses again that ingest has added
    extras_in_log: bool = True  # False: an extra delivery is requested only in the index
    extras_in_marks: bool = True  # marks keep extra deliveries
    extras_in_store: bool = True  # the record in STORE contains them
    extras_numbered: bool = True  # False: only the owner's own commit advances an extra delivery
    extras_awaited: bool = True  # False: a schedule is completed after its last occurrence, despite pending extras
    extras_as_published: bool = True  # False: an index that disagrees with the log about a backfill continues
    cancel_in_log: bool = True  # False: a cancel ends the schedule only in the index


@dataclass
class Model:
    """One check: requests, the nominal times by each member's rules, and the policy for missed occurrences."""

    requests: tuple[ModelRequest, ...]
    times: tuple[tuple[int, ...], tuple[int, ...]] = ((1, 2, 3), (1, 2, 3))
    end: int = 4
    late: Late = "all"
    crashes_max: int = 2
    mortal: tuple[int, ...] = (0, 1)  # the members that may die; the disk of any other has no effect
    rules: Rules = field(default_factory=Rules)
    reached: dict[str, int] = field(default_factory=dict)

    # ---- the calendar ----------------------------------------------------------------------------------------------

    def next_after(self, member: int, due: int) -> int:
        """Returns the first nominal time after `due` by the rules of a member; NONE if there is none."""
        return next((time for time in self.times[member] if time > due), NONE)

    def readable(self, now: int) -> int:
        """Returns the number of requests at a time."""
        return sum(request.at <= now for request in self.requests)

    def pauses(self, switches: tuple[Switch, ...]) -> list[tuple[int, int]]:
        """Returns the intervals [pause, resume)."""
        found: list[tuple[int, int]] = []
        since = NONE
        for _, at, pauses in switches:
            if pauses and since == NONE:
                since = at
            elif not pauses and since != NONE:
                found.append((since, at))
                since = NONE
        return [*found, (since, INFINITE)] if since != NONE else found

    def settled(self, state: ModelState, *more: Switch) -> ModelState:
        """Returns the state with additional switches. Removes switches that change nothing, or whose pause is over."""
        kept: list[Switch] = []
        for switch in sorted({*state.switches, *more}):
            if switch[2] != bool(kept and kept[-1][2]):
                kept.append(switch)
        pairs = zip(kept[::2], kept[1::2], strict=False)
        over = {switch for pair in pairs if pair[1][1] <= state.due for switch in pair}
        return state._replace(switches=tuple(each for each in kept if each not in over))

    def extra_of(self, member: int, offset: int) -> Extra:
        """Returns the extra deliveries that a control requests, by the rules of a member; if it requests none, the time
        in the result is NONE."""
        at, _, times = self.requests[offset]
        first, end = (at, at) if times is None else (self.next_after(member, times[0] - 1), times[1])
        return offset, 1, first if first <= end else NONE, end

    def extended(self, state: ModelState, extra: Extra) -> ModelState:
        """Returns the state with the extra deliveries of one more control; unchanged if it contains them already."""
        is_new = extra[2] != NONE and all(extra[0] != each[0] for each in state.extras)
        return state._replace(extras=(*state.extras, extra)) if is_new else state

    def extra_done(self, state: ModelState, fate: ModelFate) -> ModelState:
        """Returns the state after an extra delivery."""
        extras = []
        for control, number, due, end in state.extras:
            if control == fate.number and number <= fate.last:
                number, due = fate.last + 1, fate.next_due
            if due != NONE:
                extras.append((control, number, due, end))
        return state._replace(extras=tuple(extras))

    # ---- the two pure functions ------------------------------------------------------------------------------------

    def ingest(self, member: int, memory: Memory) -> Memory:
        """Returns the memory after the ingest of the next request."""
        offset, request = memory.next_request, self.requests[memory.next_request]
        memory = memory._replace(next_request=offset + 1)
        if request.action == SCHEDULE:
            mark = memory.mark or ModelMark()
            if mark.final:
                return memory._replace(mark=None)
            first = ModelState(1, self.next_after(member, request.at))
            state = (mark.state if self.rules.marks_number else None) or first
            state = self.settled(state, *mark.switches)
            for extra in mark.extras:
                state = self.extended(state, extra)
            put = ModelEntry(DELIVER if mark.state else STORE, state, mark.state is not None)
            return memory._replace(entry=put, mark=None)
        if offset in memory.ended:
            return memory._replace(ended=memory.ended - {offset})
        entry = memory.entry
        acts = entry is not None and entry.kind != CANCELLED
        if entry is not None and acts:
            if request.action == CANCEL:
                entry = entry._replace(kind=CANCELLED)
                if not self.rules.cancel_in_log:
                    return memory._replace(entry=None)
            elif request.action == EXTRA:
                extra = self.extra_of(member, offset)
                acts = extra[2] != NONE
                entry = entry._replace(kind=STORE, state=self.extended(entry.state, extra)) if acts else entry
            else:
                switch = (offset, request.at, request.action == PAUSE)
                entry = entry._replace(kind=STORE, state=self.settled(entry.state, switch))
        return memory._replace(entry=entry, controls=(*memory.controls, (offset, acts)))

    def apply(self, member: int, memory: Memory, fate: ModelFate) -> Memory:
        """Returns the memory after one committed fate."""
        if fate.name in ("applied", "refused"):
            if fate.number < memory.next_request:  # the control was ingested before, so the index has applied it
                left = tuple(each for each in memory.controls if each[0] != fate.number)
                return memory._replace(controls=left)
            return memory._replace(ended=memory.ended | {fate.number})
        entry = memory.entry
        if entry is None:
            return self._marked(member, memory, fate) if memory.next_request == 0 else memory
        if fate.name in ("cancelled", "completed"):
            return memory._replace(entry=None)
        state = entry.state
        if fate.name == "stored":
            adopts = self.rules.first_from_stored and state.number == 1
            state = state._replace(due=fate.due) if adopts else state
            return memory._replace(entry=ModelEntry(DELIVER if entry.kind == STORE else entry.kind, state, True))
        if fate.name in ("paused", "resumed"):
            if fate.number >= memory.next_request or not self.rules.pauses_added_once:
                state = self.settled(state, (fate.number, fate.due, fate.name == "paused"))
        elif fate.name == "extended":
            if fate.number >= memory.next_request:
                state = self.extended(state, (fate.number, 1, fate.due, fate.last))
        elif fate.name == "extra":
            state = self.extra_done(state, fate) if self.rules.extras_numbered else state
        elif fate.last >= state.number:
            state = self._behind(member, state, fate)
        return memory._replace(entry=entry._replace(state=state))

    def _behind(self, member: int, state: ModelState, fate: ModelFate) -> ModelState:
        """Returns the state after an occurrence."""
        return self.settled(state._replace(number=fate.last + 1, due=self._next_due(member, fate)))

    def _next_due(self, member: int, fate: ModelFate) -> int:
        return fate.next_due if self.rules.next_from_fate else self.next_after(member, fate.due)

    def _marked(self, member: int, memory: Memory, fate: ModelFate) -> Memory:
        mark = memory.mark or ModelMark()
        self._hit("a fate before its request")
        if mark.final or fate.name in ("cancelled", "completed"):
            return memory._replace(mark=ModelMark(final=True))
        if fate.name in ("paused", "resumed"):
            switch = (fate.number, fate.due, fate.name == "paused")
            switches = (*mark.switches, switch) if self.rules.pauses_in_marks else ()
            return memory._replace(mark=mark._replace(switches=switches))
        if fate.name in ("extended", "extra"):
            state = ModelState(1, NONE, extras=mark.extras)
            if fate.name == "extra":
                state = self.extra_done(state, fate)
            elif self.rules.extras_in_marks:
                state = self.extended(state, (fate.number, 1, fate.due, fate.last))
            return memory._replace(mark=mark._replace(extras=state.extras))
        state = mark.state or ModelState(1, fate.due)
        if fate.name != "stored" and fate.last >= state.number:
            state = ModelState(fate.last + 1, self._next_due(member, fate))
        return memory._replace(mark=mark._replace(state=state))

    # ---- transactions ----------------------------------------------------------------------------------------------

    def transactions(
        self, world: ScheduleWorld, member: int
    ) -> Iterator[tuple[tuple[ModelFate, ...], ModelState | None, bool]]:
        """Yields the transactions that a member may run: the fates, the state in STORE afterwards, and True if the
        transaction changes STORE."""
        instance = world.members[member]
        memory, entry = instance.memory, instance.memory.entry if instance.memory else None
        assert memory is not None
        waits = bool(memory.controls) or (entry is not None and entry.kind != DELIVER)
        if waits:
            yield self._key_zero(member, memory)
        if entry is None or waits:
            return
        for extra in entry.state.extras:
            if extra[2] <= world.now:
                yield self._extra(member, entry.state, extra)
        is_early = memory.next_request < instance.gate and (
            memory.next_request == 0 or entry.state.due > self.requests[memory.next_request - 1].at
        )
        if entry.state.due != NONE and not is_early:
            found = self._occurrence(world.now, member, entry)
            if found is not None:
                yield found

    def _key_zero(self, member: int, memory: Memory) -> tuple[tuple[ModelFate, ...], ModelState | None, bool]:
        entry = memory.entry
        fates: list[ModelFate] = []
        store: ModelState | None = None
        writes = False
        if entry is not None and entry.kind == CANCELLED:
            fates.append(ModelFate("cancelled"))
            writes = True
        elif entry is not None and entry.kind == STORE:
            fates.append(ModelFate("stored", due=entry.state.due if entry.state.number == 1 else NONE))
            store, writes = entry.state, True
        for offset, acts in memory.controls:
            request = self.requests[offset]
            changes = request.action in (PAUSE, RESUME, EXTRA)
            if acts and changes and entry is not None and entry.kind in (STORE, DELIVER):
                if request.action == EXTRA:
                    extra = next((each for each in entry.state.extras if each[0] == offset), None)
                    if extra is not None and self.rules.extras_in_log:
                        fates.append(ModelFate("extended", offset, extra[3], extra[2]))
                elif self.rules.pauses_in_log:
                    fates.append(ModelFate("paused" if request.action == PAUSE else "resumed", offset, due=request.at))
                if entry.kind == DELIVER:  # another owner has stored the schedule before this control
                    self._hit("stored by another owner under a control")
                    store, writes = entry.state, True
            is_refused = not acts and request.action == EXTRA and self.extra_of(member, offset)[2] == NONE
            fates.append(ModelFate("refused" if is_refused else "applied", offset))
        return tuple(fates), store, writes

    def _occurrence(
        self, now: int, member: int, entry: ModelEntry
    ) -> tuple[tuple[ModelFate, ...], ModelState | None, bool] | None:
        """Delivers or skips due occurrences, and completes the schedule after its last occurrence."""
        number, due = entry.state[:2]
        state = entry.state
        fates: list[ModelFate] = []
        skip = self._skipped(now, member, state)
        if skip is not None:
            last, reason = skip
            following = self._after(now, member, state.due, last - number + 1)
            if reason == "paused" or self.rules.skips_in_log:
                fates.append(ModelFate("skipped", number, last, due, following, reason))
            number, due = last + 1, following
            self._hit(f"skipped {reason}")
        elif due <= now and not any(start <= due < end for start, end in self.pauses(state.switches)):
            following = self._after(now, member, due, 1)
            fates.append(ModelFate("occurred", number, number, due, following))
            number, due = number + 1, following
            self._hit("occurred")
        else:
            return None
        return self._go_on(fates, self.settled(state._replace(number=number, due=due)))

    def _extra(
        self, member: int, state: ModelState, extra: Extra
    ) -> tuple[tuple[ModelFate, ...], ModelState | None, bool]:
        """Delivers an extra, and completes the schedule after the last one."""
        control, number, due, end = extra
        following = self.next_after(member, due)
        fate = ModelFate("extra", control, number, due, following if following <= end else NONE)
        self._hit("extra")
        return self._go_on([fate], self.extra_done(state, fate))

    def _go_on(
        self, fates: list[ModelFate], state: ModelState
    ) -> tuple[tuple[ModelFate, ...], ModelState | None, bool]:
        if state.due == NONE and (not state.extras or not self.rules.extras_awaited):
            fates.append(ModelFate("completed"))
            return tuple(fates), None, self.rules.tombstone
        if state.due == NONE:
            self._hit("extras after the last occurrence")
        return tuple(fates), state, True

    def _after(self, now: int, member: int, due: int, steps: int) -> int:
        for _ in range(steps):
            due = self.next_after(member, due if self.rules.next_from_nominal else max(due, now))
        return due

    def _skipped(self, now: int, member: int, state: ModelState) -> tuple[int, str] | None:
        """Returns the last number of the range to skip, starting with the next occurrence, and the reason; or None."""
        if state.due > now:
            return None
        pauses = self.pauses(state.switches)
        for start, end in pauses:
            if start <= state.due < end:
                stop = end if self.rules.paused_until_resume else min(end, now + 1)
                if stop == INFINITE or state.due >= stop:
                    return None
                last, due = state.number, self.next_after(member, state.due)
                while due != NONE and due < stop:
                    last, due = last + 1, self.next_after(member, due)
                return last, "paused"
        if self.late != "last":
            return None
        found, newest, due = [state.due], state.due, self.next_after(member, state.due)
        while due != NONE and due <= now:
            found.append(due)
            if not any(start <= due < end for start, end in pauses):
                newest = due
            elif any(start <= due and end == INFINITE for start, end in pauses):
                break
            due = self.next_after(member, due)
        missed = 0
        while found[missed] < newest and not any(start <= found[missed] < end for start, end in pauses):
            missed += 1
        return (state.number + missed - 1, "missed") if missed else None

    # ---- the steps -------------------------------------------------------------------------------------------------

    def steps(self, world: ScheduleWorld) -> Iterator[tuple[str, ScheduleWorld, str]]:
        """Yields every possible step: its name, the world after it, and the violation, if any."""
        if world.now < self.end:
            yield "tick", world._replace(now=world.now + 1), ""
        for member in (0, 1):
            name, instance = "AB"[member], world.members[member]
            memory = instance.memory
            if memory is None:
                if member == 0 or world.log or world.crashes or self.times[0] != self.times[1]:
                    yield f"{name} takes over", self._taken_over(world, member), ""
                if instance.disk is not None and world.crashes < self.crashes_max:
                    empty = _with(world, member, instance._replace(disk=None))
                    yield f"{name} loses its disk", empty._replace(crashes=world.crashes + 1), ""
                continue
            if memory.next_request < self.readable(world.now):
                after = self.ingest(member, memory)
                gate = instance.gate if after.next_request < instance.gate else 0
                read = instance._replace(memory=after, gate=gate)
                yield f"{name} reads {memory.next_request}", _with(world, member, read), ""
            if memory != instance.disk and member in self.mortal:
                yield f"{name} syncs", _with(world, member, instance._replace(disk=memory)), ""
            if world.crashes < self.crashes_max and member in self.mortal:
                down = _with(world, member, Instance(disk=instance.disk))
                yield f"{name} dies", down._replace(crashes=world.crashes + 1), ""
            if instance.owns:
                for fates, store, writes in self.transactions(world, member):
                    yield from self._committed(world, member, fates, store, writes)

    def _committed(
        self, world: ScheduleWorld, member: int, fates: tuple[ModelFate, ...], store: ModelState | None, writes: bool
    ) -> Iterator[tuple[str, ScheduleWorld, str]]:
        instance = world.members[member]
        before = instance.memory
        assert before is not None
        wrong = self.judge(world, member, fates)
        memory = before
        for fate in fates:
            memory = self.apply(member, memory, fate)
        if memory.entry is not None and store is not None:
            memory = memory._replace(entry=memory.entry._replace(state=store))
        if store is not None and not self.rules.pauses_in_store:
            store = store._replace(switches=())
        if store is not None and not self.rules.extras_in_store:
            store = store._replace(extras=())
        low_water = self._low_water(before)
        log = (*world.log, ModelLog(self.readable(world.now), fates)) if fates else world.log
        memory = memory._replace(next_dispatch=len(log))
        done = world._replace(log=log, low_water=max(low_water, world.low_water))
        text = f"{'AB'[member]} commits {' '.join(f'{each.name} {each.number}' for each in fates)}"
        if not self.rules.advance_after_commit and any(fate.name == "occurred" for fate in fates):
            early = before._replace(entry=memory.entry, controls=memory.controls)
            yield f"{text}, not committed", _with(world, member, instance._replace(memory=early)), ""
        if writes and not self.rules.store_in_transaction:
            late = _with(done, member, instance._replace(memory=memory))
            yield f"{text}, not STORE", late, wrong
        if writes:
            done = done._replace(store=store)
        yield text, _with(done, member, instance._replace(memory=memory)), wrong

    def _low_water(self, memory: Memory) -> int:
        """Returns the smallest offset of an entry that is not in STORE; if there is none, R, the next request to
        read."""
        unstored = [offset for offset, _ in memory.controls]
        if memory.entry is not None and not memory.entry.stored:
            unstored.append(0)
        return min(unstored, default=memory.next_request)

    def _taken_over(self, world: ScheduleWorld, member: int) -> ScheduleWorld:
        """Fences, rebuilds if the disk is empty, and replays; returns the world afterwards."""
        instance = world.members[member]
        memory = self._replayed(world, member, instance.disk or self._empty(world))
        if memory is None:
            self._hit("an index that contradicts the log")
            memory = self._replayed(world, member, self._empty(world))
            assert memory is not None, "without an index nothing contradicts the log"
        others = _with(world, 1 - member, world.members[1 - member]._replace(owns=False))
        gate = self.readable(world.now)
        return _with(others, member, Instance(memory, instance.disk, True, gate if memory.next_request < gate else 0))

    def _empty(self, world: ScheduleWorld) -> Memory:
        """Returns the memory of a member that starts without a disk, as rebuilt from STORE."""
        low = world.low_water
        self._hit("an empty start before its schedule" if low == 0 else "an empty start after its schedule")
        entry = ModelEntry(DELIVER, world.store, True) if low > 0 and world.store is not None else None
        start = next((at for at, record in enumerate(world.log) if record.readable > low), len(world.log))
        return Memory(low, start, entry)

    def _replayed(self, world: ScheduleWorld, member: int, memory: Memory) -> Memory | None:
        """Returns the index after it has replayed the log; None if the two contradict each other about a backfill."""
        published: set[Extra] = set()
        for record in world.log[memory.next_dispatch :]:
            for fate in record.fates:
                if fate.name == "extended":
                    published.add((fate.number, 1, fate.due, fate.last))
                elif fate.name in ("applied", "refused") and (fate.number, True) in memory.controls:
                    held = memory.entry.state.extras if memory.entry is not None else ()
                    is_same = all(extra in published for extra in held if extra[0] == fate.number)
                    if not is_same and self.rules.extras_as_published:
                        return None
                memory = self.apply(member, memory, fate)
        return memory._replace(next_dispatch=len(world.log))

    # ---- what must hold --------------------------------------------------------------------------------------------

    def judge(self, world: ScheduleWorld, member: int, fates: tuple[ModelFate, ...]) -> str:
        """Returns the promise that a transaction violates, or empty. Reads only the log and the requests."""
        instance = world.members[member]
        assert instance.memory is not None
        known = max(instance.memory.next_request, instance.gate)
        number, due, ended = 0, NONE, False
        extras: dict[int, tuple[int, int]] = {}
        for record in (*world.log, ModelLog(known, fates)):
            for fate in record.fates:
                if fate.name == "refused":
                    if all(self.extra_of(each, fate.number)[2] != NONE for each in (0, 1)):
                        return f"EXTRA LOST: {fate.number}"
                    continue
                if fate.name == "applied":
                    asks = self.requests[fate.number].action == EXTRA and not ended
                    if asks and number + due != NONE and fate.number not in extras:
                        return f"EXTRA LOST: {fate.number}"
                    continue
                if ended:
                    return f"AFTER ITS END: {fate.name}"
                ended = fate.name in ("cancelled", "completed")
                if fate.name == "completed" and any(next_due != NONE for _, next_due in extras.values()):
                    return "EXTRA LOST: completed"
                if fate.name == "extended":
                    if fate.number in extras:
                        return f"REPEATED: extended by {fate.number}"
                    extras[fate.number] = (1, fate.due)
                elif fate.name == "extra":
                    if extras.get(fate.number) != (fate.last, fate.due):
                        return f"REPEATED: extra {fate.number}/{fate.last}"
                    extras[fate.number] = (fate.last + 1, fate.next_due)
                elif fate.name == "stored" and number == 0:
                    due = fate.due
                elif fate.name in ("occurred", "skipped"):
                    if fate.number <= number:
                        return f"REPEATED: {fate.number}"
                    if fate.number > number + 1:
                        return f"MISSING: {number + 1}"
                    if fate.due != due:
                        return f"OTHER TIME: {fate.number} at {fate.due}, published {due}"
                    number, due = fate.last, fate.next_due
        return next((bad for fate in fates if (bad := self._bad(world.now, member, fate, known))), "")

    def _bad(self, now: int, member: int, fate: ModelFate, known: int) -> str:
        """Returns the promise that one new fate violates, given the requests below `known`."""
        if fate.name == "extra" and now < fate.due:
            return f"EARLY: extra {fate.number}/{fate.last}"
        if fate.name not in ("occurred", "skipped"):
            return ""
        switches = tuple(
            (o, r.at, r.action == PAUSE) for o, r in enumerate(self.requests) if r.action in (PAUSE, RESUME)
        )
        intervals = Model(self.requests).pauses(switches)
        times = [
            time for time in self.times[member] if fate.due <= time and (fate.next_due == NONE or time < fate.next_due)
        ]
        is_paused = all(any(start <= time < end for start, end in intervals) for time in times)
        if fate.reason == "paused" and not is_paused:
            return f"WRONGLY SKIPPED: {fate.number} to {fate.last}"
        if fate.name == "occurred":
            if now < fate.due:
                return f"EARLY: {fate.number}"
            if fate.next_due not in {self.next_after(other, fate.due) for other in (0, 1)}:
                return f"PASSED OVER: the time after {fate.due}"
            for offset, request in enumerate(self.requests[:known]):
                if request.action == CANCEL and request.at < fate.due:
                    return f"CANCEL LOST: {fate.number}"
                paused = any(start == request.at and start <= fate.due < end for start, end in intervals)
                if request.action == PAUSE and paused and offset < known:
                    return f"PAUSE LOST: {fate.number}"
        return ""

    def is_over(self, world: ScheduleWorld) -> bool:
        """True if the log ends the schedule."""
        return any(fate.name in ("cancelled", "completed") for record in world.log for fate in record.fates)

    def must_end(self) -> bool:
        """True if the requests allow the schedule to end."""
        switches = tuple(
            (o, r.at, r.action == PAUSE) for o, r in enumerate(self.requests) if r.action in (PAUSE, RESUME)
        )
        return all(end < INFINITE for _, end in Model(self.requests).pauses(switches))

    def run(self) -> tuple[str, list[str], int]:
        """Explores all worlds; returns the first violation, the steps that lead to it, and the number of worlds."""
        start = ScheduleWorld(0, (), None, 0, (Instance(), Instance()), 0)
        seen: dict[ScheduleWorld, tuple[str, ScheduleWorld] | None] = {start: None}
        queue = deque([start])
        while queue:
            world = queue.popleft()
            acts = False
            for name, after, wrong in self.steps(world):
                acts = acts or not name.endswith(("syncs", "dies", "loses its disk", "takes over"))
                if wrong:
                    return wrong, [*_trace(seen, world), name], len(seen)
                if after not in seen:
                    seen[after] = (name, world)
                    queue.append(after)
            is_owned = any(each.owns for each in world.members)
            if not acts and is_owned and world.now == self.end and self.must_end():
                if not self.is_over(world):
                    return "LOST: the schedule rests and has not ended", _trace(seen, world), len(seen)
                self._hit("came to its end")
        return "", [], len(seen)

    def _hit(self, what: str) -> None:
        self.reached[what] = self.reached.get(what, 0) + 1


def _with(world: ScheduleWorld, member: int, instance: Instance) -> ScheduleWorld:
    first, second = world.members
    return world._replace(members=(instance, second) if member == 0 else (first, instance))


def _trace(seen: dict[ScheduleWorld, tuple[str, ScheduleWorld] | None], world: ScheduleWorld) -> list[str]:
    names: list[str] = []
    while (step := seen[world]) is not None:
        names.append(step[0])
        world = step[1]
    return names[::-1]
