"""Records of verdicts topics to rows: what was answered to which request.

A record that is not of the format, or stands where it cannot (the request of another partition, a key that is not the
id) is `malformed` and says nothing of a request.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postdate.connectors.spark.request_rows import parsed_origin

_JSON = "v BIGINT, origin STRING, id STRING, verdict STRING, of STRING, at BIGINT"
ANSWERS = (
    *("accepted", "rejected", "cancelled", "rescheduled", "replaced"),
    *("delivered", "dead", "not-found", "too-late"),
)
"""What a request may be answered."""


def answer_rows(records: DataFrame, requests_of: Mapping[str, str]) -> DataFrame:
    """One row for each verdict record: the origin that it answers, `answer`, `id`, `of`, and where it stands.

    `requests_of` gives the request topic of each verdicts topic. `of` is an offset of the same partition. Where
    `malformed`, topic and partition are those of the requests that the record's partition belongs to, the rest is null.
    """
    requests = F.try_element_at(
        F.create_map(*(F.lit(name) for pair in requests_of.items() for name in pair)), F.col("topic")
    )
    read = records.select(
        requests.alias("topic"),
        "partition",
        F.concat_ws("/", "topic", "partition", "offset").alias("place"),
        "key",
        F.from_json(F.col("value").cast("string"), _JSON).alias("said"),
    ).withColumns({"origin": parsed_origin(F.col("said.origin")), "meant": parsed_origin(F.col("said.of"))})
    said, origin, meant = F.col("said"), F.col("origin"), F.col("meant")
    is_here = (origin.topic == F.col("topic")) & (origin.partition == F.col("partition")) & origin.offset.isNotNull()
    means_here = (meant.topic == F.col("topic")) & (meant.partition == F.col("partition")) & meant.offset.isNotNull()
    is_whole = (said.v == 1) & said.verdict.isin(*ANSWERS) & (said["at"] >= 0) & is_here
    is_sound = is_whole & (said.of.isNull() | means_here) & F.col("key").eqNullSafe(F.encode(said.id, "UTF-8"))
    sound = F.coalesce(is_sound, F.lit(False))
    return read.select(
        "topic",
        "partition",
        F.when(sound, origin.offset).alias("offset"),
        F.when(sound, said.verdict).alias("answer"),
        F.when(sound, F.encode(said.id, "UTF-8")).alias("id"),
        F.when(sound, meant.offset).alias("of"),
        "place",
        (~sound).alias("malformed"),
    )
