"""Changes as one RocksDB WriteBatch.

Only what the timer log holds is deleted: an entry that came and went within the changes leaves no tombstone. A span of
entries becomes one range tombstone that ends just behind its last key, never at a scan's bound.
"""

from __future__ import annotations

from rocksdict import WriteBatch

from postdate.wheel.changes import Changes
from postdate.wheel.database import Database
from postdate.wheel.entry import encode_mark
from postdate.wheel.keys import number_key

_AFTER = b"\0"


def fill(batch: WriteBatch, db: Database, changes: Changes) -> None:
    """Add the changes to a batch: what ends first, then what is there afterwards, since a batch keeps its order."""
    put, delete = batch.put, batch.delete
    entries = db.handle("entries")
    for span in changes.spans:
        batch.delete_range(span.keys[0], span.keys[-1] + _AFTER, entries)
    overlay = changes.entries
    for key in changes.drops:
        if overlay[key] is None:
            delete(key, entries)
    for key, value in overlay.items():
        if value is not None:
            put(key, value, entries)
    parked = db.handle("parked")
    for key in changes.parked_drops:
        if changes.parked[key] is None:
            delete(key, parked)
    for key, value in changes.parked.items():
        if value is not None:
            put(key, value, parked)
    places = {number_key(offset): place for offset, place in changes.places.items()}
    marks = {number_key(o): None if mark is None else encode_mark(mark) for o, mark in changes.marks.items()}
    for name, rows in (("ids", changes.ids), ("ended", changes.ended), ("places", places), ("ahead", marks)):
        family = db.handle(name)
        for key, value in rows.items():
            if value is None:
                delete(key, family)
            else:
                put(key, value, family)
    firsts = db.handle("firsts")
    for offset, packed in changes.firsts:
        if packed:
            put(number_key(offset), packed, firsts)
