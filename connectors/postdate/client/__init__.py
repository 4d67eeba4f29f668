"""Builds requests to Postdate from `datetime` and `timedelta`, for any producer.

    from datetime import timedelta
    from postdate.client import RequestTopic

    requests = RequestTopic("postdate.requests", partitions=4)
    later = timedelta(hours=2)
    producer.produce(**requests.schedule("reminders", b"pay!", key=b"customer-7", delay=later, id="order-9"))
    producer.produce(**requests.reschedule(id="order-9", delay=2 * later))
    producer.produce(**requests.cancel(id="order-9"))

This package opens no connection and needs no Kafka client: a record is a value that unpacks into the arguments of a
producer's call. Everything may be called from any thread. `docs/client.md` is the guide.
"""

from __future__ import annotations

from postdate.client.delivered import Delivered, read_delivered
from postdate.client.errors import RequestInvalid
from postdate.client.record import RequestRecord
from postdate.client.request_topic import RequestTopic
from postdate.wire.errors import FormatError
from postdate.wire.reasons import Reason
from postdate.wire.verdicts import Verdict, VerdictRecord, decode_verdict

__all__ = [
    "Delivered",
    "FormatError",
    "Reason",
    "RequestInvalid",
    "RequestRecord",
    "RequestTopic",
    "Verdict",
    "VerdictRecord",
    "decode_verdict",
    "read_delivered",
]
