"""The meaning of every halt, and the remedy. `postdate shard status` and docs/operations.md show them.

A full disk is not a halt, since the shard recovers without help; its advice is here as well.

Thread rule: a constant.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from postdate.sidecar.errors import HaltReason

DISK_FULL: Final = "the disk is full: free space or enlarge the volume, and the shard continues; requests wait in Kafka"


class Advice(NamedTuple):
    """The advice on one halt. `meaning`: the cause of the halt. `action`: the remedy for the operator."""

    meaning: str
    action: str


ADVICE: Final[dict[HaltReason, Advice]] = {
    HaltReason.TOPIC_RECREATED: Advice(
        "a topic of this shard was deleted and created again, so offsets mean other records",
        "If that was unintended, stop the deployment and find out what is gone: records of the request or the store"
        " topic may exist only in this index. If it was intended, delete and create all topics of this request topic"
        " again, then rebuild the shard",
    ),
    HaltReason.REQUESTS_TRUNCATED: Advice(
        "the request topic ends before requests that were read: its end was lost, and its offsets are assigned again",
        "Find out which broker lost data. Produce to the partition until it has passed the end of the range, then"
        " resume and accept its loss. Do not rebuild: it would forget that offsets were used twice",
    ),
    HaltReason.REQUESTS_LOST: Advice(
        "retention deleted requests before they were read",
        "Raise retention.ms of the request topic. To continue, resume and accept the loss of the range",
    ),
    HaltReason.LOW_WATER_OUTSIDE: Advice(
        "the local index is gone, and retention deleted requests that were still pending",
        "Put the shard's directory back if there is a copy of it, and resume. Otherwise resume and accept the loss",
    ),
    HaltReason.DISPATCH_LOG_TRUNCATED: Advice(
        "the dispatch log ends before records that were seen: its end was lost",
        "Find out which broker lost data. Keep this shard's directory: only it has the lost fates. To continue with"
        " it, resume and accept the loss; do not rebuild",
    ),
    HaltReason.DISPATCH_LOG_EMPTY: Advice(
        "the dispatch log holds no record of a shard that was served before",
        "Put the shard's directory back if there is a copy of it, and resume. Otherwise resume and accept the loss of"
        " the present requests",
    ),
    HaltReason.FATES_MISSING: Advice(
        "the local index is gone, and records of the dispatch log that a rebuild needs were deleted",
        "Put the shard's directory back if there is a copy of it, and resume. Otherwise resume and accept the loss",
    ),
    HaltReason.SEQ_BROKEN: Advice(
        "a dispatch-log record is missing, or a foreign client wrote one",
        "Stop every sidecar of the request topic and run postdate audit, which names missing messages. Then resume and"
        " accept the loss: pending requests that are not in the store topic are given up, up to an hour past the break",
    ),
    HaltReason.NEWER_FORMAT: Advice(
        "a newer Postdate has served this shard",
        "Run that version here; it takes the shard over when it starts",
    ),
    HaltReason.FOREIGN_RECORD: Advice(
        "a foreign client has written into one of Postdate's own topics",
        "Find the client and revoke its write permission. To skip the record, resume and accept its range",
    ),
    HaltReason.TOPIC_RULES: Advice(
        "a topic or a partition that the shard needs does not exist",
        "Run postdate topics create --allow-existing, then resume",
    ),
    HaltReason.INTERNAL: Advice(
        "a defect of Postdate stopped the shard repeatedly",
        "Report it with the log; resume tries again",
    ),
}
