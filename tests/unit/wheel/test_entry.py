"""Goal: entries, marks and keys read back, and other bytes are refused as corrupt.

Method: hypothesis over all fields; the byte order of keys against the order of their numbers.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postdate.wheel.entry import (
    NO_STRIPPED,
    Entry,
    Kind,
    Mark,
    StrippedHeaders,
    decode_entry,
    decode_head,
    decode_mark,
    encode_accepted,
    encode_entry,
    encode_mark,
    head_bytes,
    pack_stripped,
    stripped_of,
)
from postdate.wheel.errors import Corrupt
from postdate.wheel.keys import (
    ENTRY_KEY_SIZE_BYTES,
    entry_key,
    key_number,
    number_key,
    parked_key,
    parked_prefix,
    split_key,
    split_parked_key,
)
from postdate.wheel.timer_log.changes import EntryChanges

NUMBERS = st.integers(0, 2**63 - 1)
MAYBE_BYTES = st.none() | st.binary(max_size=20)
NAMES = st.text(max_size=10)
STRIPPED = st.lists(st.tuples(st.integers(0, 50), NAMES, MAYBE_BYTES), max_size=3)
ENTRIES = st.builds(
    Entry,
    kind=st.sampled_from(Kind).map(int),
    stored=st.booleans(),
    first_due=NUMBERS,
    due=NUMBERS,
    target=NAMES,
    key=MAYBE_BYTES,
    value=MAYBE_BYTES,
    headers=st.lists(st.tuples(NAMES, MAYBE_BYTES), max_size=4),
    partition=st.integers(-1, 100),
    id=st.binary(max_size=20),
    grace_ms=st.integers(-1, 2**40),
    own_key=st.just(()) | st.tuples(MAYBE_BYTES),
    stripped=STRIPPED.map(pack_stripped),
    reason=NAMES,
    detail=NAMES,
    acts_on=st.integers(-1, 2**60),
    new_due=st.integers(-1, 2**60),
    accepted_ms=st.integers(-1, 2**60),
)


@given(ENTRIES)
def test_entries_read_back(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


@given(STRIPPED)
def test_removed_headers_read_back(stripped: StrippedHeaders) -> None:
    entry = Entry(Kind.DELIVER, False, 5, 5, "orders", None, None, [], stripped=pack_stripped(stripped))
    assert stripped_of(decode_entry(encode_entry(entry))) == stripped
    assert stripped or entry.stripped == NO_STRIPPED
    raw = encode_entry(msgspec.structs.replace(entry, stripped=msgspec.Raw(b"\x91\xc0")))
    with pytest.raises(Corrupt, match="stripped headers"):
        stripped_of(decode_entry(raw))


@given(ENTRIES, STRIPPED)
def test_an_accepted_request_decodes_as_its_entry(entry: Entry, stripped: StrippedHeaders) -> None:
    new = Entry(
        kind=Kind.DELIVER,
        stored=False,
        first_due=entry.due,
        due=entry.due,
        target=entry.target,
        key=entry.key,
        value=entry.value,
        headers=entry.headers,
        partition=entry.partition,
        grace_ms=entry.grace_ms,
        own_key=entry.own_key,
        stripped=pack_stripped(stripped),
        accepted_ms=entry.accepted_ms,
    )
    assert encode_entry(new) == encode_accepted(
        new.due,
        new.target,
        new.key,
        new.value,
        new.headers,
        new.partition,
        new.grace_ms,
        new.own_key,
        stripped,
        new.accepted_ms,
    )


@given(ENTRIES, ENTRIES)
def test_only_the_head_of_an_entry_decodes_as_its_head(one: Entry, other: Entry) -> None:
    """`one` is compared with entries whose heads equal its head, differ in one field, or are unrelated."""
    head, raw = decode_head(encode_entry(one)), encode_entry(one)
    begins = head_bytes(raw, head)
    assert raw.startswith(begins)
    assert len(begins) < len(raw), "it is cut behind the head, or it would be like no other"
    same = msgspec.structs.replace(other, **msgspec.structs.asdict(head))
    near = [msgspec.structs.replace(same, **{name: getattr(other, name)}) for name in head.__struct_fields__]
    near.append(msgspec.structs.replace(same, target=one.target + "2"))
    for candidate in (other, same, *near):
        there = encode_entry(candidate)
        assert there.startswith(begins) == (decode_head(there) == head)


@given(st.builds(Mark, final=st.booleans(), stored=st.booleans(), due=st.integers(-1, 2**60)))
def test_marks_read_back(mark: Mark) -> None:
    assert decode_mark(encode_mark(mark)) == mark


@given(ENTRIES, st.data())
def test_damaged_entries_are_corrupt_or_other_entries_never_another_error(entry: Entry, data: st.DataObject) -> None:
    good = encode_entry(entry)
    bad = bytearray(good)
    bad[data.draw(st.integers(0, len(bad) - 1))] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(bad), good[: data.draw(st.integers(0, len(good) - 1))], b""):
        try:
            assert isinstance(decode_entry(damaged), Entry)
        except Corrupt:
            continue


def test_fields_added_later_have_defaults_for_older_values() -> None:
    old = msgspec.msgpack.encode((0, False, 5, 5, "orders", None, b"v", []))
    assert decode_entry(old) == Entry(0, False, 5, 5, "orders", None, b"v", [])
    with pytest.raises(Corrupt):
        decode_mark(b"\xc1")


@given(st.tuples(NUMBERS, NUMBERS), st.tuples(NUMBERS, NUMBERS))
def test_keys_order_as_their_numbers_do(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (entry_key(*one) < entry_key(*other)) == (one < other)
    assert split_key(entry_key(*one)) == one
    assert len(entry_key(*one)) == ENTRY_KEY_SIZE_BYTES
    assert key_number(number_key(one[0])) == one[0]


@given(st.text("abcdefghijklmnopqrstuvwxyz._-", min_size=1, max_size=20), NUMBERS, NUMBERS)
def test_parked_keys_name_their_target(target: str, due_ms: int, offset: int) -> None:
    key = parked_key(target, due_ms, offset)
    assert split_parked_key(key) == (target, due_ms, offset)
    assert split_key(key) == (due_ms, offset)
    assert key.startswith(parked_prefix(target))
    assert len(key) > ENTRY_KEY_SIZE_BYTES


def test_changes_are_visible_to_later_steps() -> None:
    changes, key, other = EntryChanges(), entry_key(5, 1), entry_key(6, 1)
    changes.insert(key, b"abc")
    assert changes.entries[key] == b"abc"
    changes.delete(key, 3)
    assert changes.entries[key] is None
    assert not changes.drops, "the log never held it"
    changes.delete(other, 9, stored=True)
    changes.insert(other, b"new")
    assert changes.entries[other] == b"new"
    assert changes.drops == {other: 9}
    assert changes.stored_drops == {other}
    changes.replace(other, b"newer", 3)
    assert changes.drops == {other: 9}, "the log loses what it held, once"
    with pytest.raises(AssertionError):
        changes.delete(key, 3)


def test_a_span_over_keys_of_the_changes_falls_back_to_point_deletes() -> None:
    changes = EntryChanges()
    keys = [entry_key(5, offset) for offset in range(300)]
    changes.insert(keys[7], b"xy")
    changes.delete_span(keys[0], keys[-1], keys, [1] * 300)
    assert not changes.spans
    assert len(changes.drops) == 299
    assert all(changes.entries[key] is None for key in keys)
