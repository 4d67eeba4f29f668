"""Goal: the audit accepts a refusal of a schedule or a bulk control that names two times, and rejects a refusal for a
missing time. Method: the rule alone, applied to headers and the reason of a dead letter. The parser decides whether
each case is refused.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from postdate.spark.columns.digests import EMPTY_HEADERS
from postdate.spark.records.refusals import unfounded_refusal
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import Headers
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.rules import RequestRules

TOPIC, ID = ("postdate-topic", b"orders"), ("postdate-id", b"a")
CRON, EVERY, AT = ("postdate-cron", b"0 9 * * *"), ("postdate-every", b"5m"), ("postdate-at", b"1795258290000")
BULK: Headers = [("postdate-action", b"reschedule"), ("postdate-select-topic", b"orders"), ("postdate-by", b"1h")]
CONFLICTS: dict[str, Headers] = {
    "a cron expression and a time": [TOPIC, ID, CRON, AT],
    "an interval and a delay": [TOPIC, ID, EVERY, ("postdate-delay", b"1s")],
    "a zone and a time": [TOPIC, ID, AT, ("postdate-zone", b"Europe/Berlin")],
    "a count and a policy of returns": [TOPIC, ("postdate-retry", b"base=1s"), ("postdate-count", b"1")],
    "a time and one by which it moves": [*BULK, AT],
}
SOUND: dict[str, Headers] = {"a cron expression": [TOPIC, ID, CRON], "an interval": [TOPIC, ID, EVERY], "a bulk": BULK}
RULES = RequestRules(topic="requests", format_version=3)


def parsed(headers: Headers) -> str:
    """Returns the reason for which the parser refuses a request, or "" if it accepts the request."""
    try:
        parse_request(RULES, 0, 1_795_258_284_000, b"k", headers)
    except RequestRefused as refused:
        return refused.reason.value
    return ""


def test_the_rule_agrees_with_the_parser(spark: SparkSession) -> None:
    assert {name: parsed(headers) for name, headers in CONFLICTS.items()} == dict.fromkeys(
        CONFLICTS, "conflicting-time"
    )
    assert {name: parsed(headers) for name, headers in SOUND.items()} == dict.fromkeys(SOUND, "")
    headers_of = {**CONFLICTS, **SOUND}
    cases = [(name, reason, headers_of[name]) for name in headers_of for reason in ("conflicting-time", "missing-time")]
    frame = spark.createDataFrame(cases, f"name string, reason string, headers {EMPTY_HEADERS}")
    unfounded = unfounded_refusal(F.col("reason"), F.col("headers"), F.lit("requests"), F.lit(0))
    rows = frame.select("name", "reason", unfounded.alias("found")).collect()
    assert {row["name"] for row in rows if row["reason"] == "conflicting-time" and row["found"]} == {*SOUND}
    assert {row["name"] for row in rows if row["reason"] == "missing-time" and not row["found"]} <= {"a bulk"}
