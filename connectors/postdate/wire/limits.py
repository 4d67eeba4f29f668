"""Bounds of the data that Postdate reads from Kafka and writes to Kafka, and of the tables that parsing remembers."""

from __future__ import annotations

from typing import Final

# Offsets, times and sequence numbers are signed 64-bit in Kafka; no broker writes larger ones.
INTEGER_END: Final = 2**63

# The newest version of the record formats and request headers that this release knows.
FORMAT_VERSION_MAX: Final = 3

# The first version that accepts returns and windows, and the first that accepts recurring schedules.
RETURNS_VERSION: Final = 2
SCHEDULES_VERSION: Final = 3

# Partitions are signed 32-bit in Kafka.
PARTITION_END: Final = 2**31

# In the keys of the timer log, due time 0 marks entries that end without a delivery, so an instant of 0 counts as 1.
DUE_MS_MIN: Final = 1

# Decimal digits of 2**63 - 1. Longer numbers are refused before they are converted, since the cost of a conversion
# grows with the square of the length.
INTEGER_DIGITS_MAX: Final = 19

# The longest plausible time, 9999-12-31T23:59:59.999999999+00:00, has 35 characters. Longer texts than this are refused
# before they are parsed.
TIME_TEXT_BYTES_MAX: Final = 64

# Kafka's limit of a topic name, which is also a directory name.
TOPIC_NAME_LENGTH_MAX: Final = 249

# `<topic>/<partition>/<offset>`.
ORIGIN_BYTES_MAX: Final = TOPIC_NAME_LENGTH_MAX + 1 + 10 + 1 + 19

# 128 bits in Base64 without padding.
ID_DIGEST_LENGTH: Final = 22

# An id is a key of the timer log and of verdicts; 256 bytes hold any UUID, URN or composed order number.
ID_BYTES_MAX: Final = 256

# The key by which a bulk control selects is stored in the row of the control in the timer log. Keys in use are short.
SELECTED_KEY_BYTES_MAX: Final = 4_096

# Parsed texts that each table of a request topic's rules remembers. Real streams use few targets and few delays. A full
# table is emptied, which costs a stream of new texts no more than parsing them.
REMEMBERED_TEXTS_MAX: Final = 4_096

# 400 days: a year and a month of grace. The wheel's hour ring has a slot for each hour of it.
HORIZON_MS_DEFAULT: Final = 400 * 86_400_000

# Fates of one record. Measured: 20,000 fates are 780 KB, and a broker's usual limit is 1 MB a record.
FATES_MAX: Final = 10_000

# Ids of delivered messages that one record contains. With this many ids, a record with 10,000 fates of messages with
# windows is no larger than a record with 10,000 fates `moved`.
IDS_MAX: Final = 3_000

# Rows of named policies that one dispatch-log record repeats: enough for several changes of every name while an old
# request is pending. Names and texts have no character that JSON escapes.
POLICY_ROWS_MAX: Final = 256
POLICY_NAME_LENGTH_MAX: Final = 64
POLICY_TEXT_LENGTH_MAX: Final = 256
# Attempts of one message. The backoff of attempt n costs up to n multiplications.
ATTEMPTS_MAX: Final = 1_000
FACTOR_MAX: Final = 100

# Parsed policies, and backoffs, that are remembered: real streams use few.
POLICIES_REMEMBERED_MAX: Final = 1_024

# 17 years: the arithmetic of a draw stays below 2**63, so that SQL computes the same.
WINDOW_MS_MAX: Final = 2**39 - 1

# 10,000 fates `moved` with 19-digit numbers take 0.9 MB. Postdate writes no record larger than this bound.
DISPATCH_RECORD_BYTES_MAX: Final = 1024 * 1024

# A detail is one sentence for a person. It must fit in the margin (64 KiB) of max.message.bytes of Postdate's topics.
DETAIL_BYTES_MAX: Final = 1_024

# More than twice the sum of three origins with the longest topic name, an id of 256 bytes that JSON escapes to six
# bytes each, and the names of the fields.
VERDICT_BYTES_MAX: Final = 8 * 1024

# A detail quotes at most this much of a producer's text.
QUOTED_BYTES_MAX: Final = 80

# Enough for a list of all sixty seconds, a list of all sixty minutes, and four more fields.
CRON_LENGTH_MAX: Final = 512

# The shortest interval is one second, as in cron expressions with seconds. The longest is 100 years.
EVERY_MS_MIN: Final = 1_000
EVERY_MS_MAX: Final = 36_525 * 86_400_000

# The end of the year 9997. Clock changes are looked up for up to 388 days more, and the calendar ends with 9999.
NOMINAL_MS_MAX: Final = 253_339_228_800_000 - 1

# 50 years: February has a fifth Monday every 28 years, but around 2100 the interval is 40 years.
SEARCH_S_MAX: Final = 50 * 366 * 86_400

# Occurrences of one schedule that one call of `decide` decides.
OCCURRENCES_MAX: Final = 1_000

# Pauses and resumes of one schedule that still have an effect: a record of STORE has all of them.
SWITCHES_MAX: Final = 64

# Triggers and backfills of one schedule whose extra deliveries are pending: a record of STORE has all of them.
EXTRAS_MAX: Final = 64

# Deliveries of one backfill: every minute of a week, or every hour of a year. Only the end of the schedule stops a
# backfill.
BACKFILL_MAX: Final = 10_000

# With `postdate-missed: none`, occurrences that are later than this are missed. A takeover takes much less.
LATE_MS_MAX: Final = 60_000

# Parsed expressions that are remembered, of about 2 KB each.
EXPRESSIONS_REMEMBERED_MAX: Final = 4_096

# Enough for all zones of tzdata, about 600. A zone remembers blocks of 388 days: a search of 50 years needs 48 blocks.
ZONES_REMEMBERED_MAX: Final = 1_024
ZONE_BLOCKS_MAX: Final = 64

# Schedules that are remembered as parsed, of about 600 bytes each: many schedules share their headers.
SCHEDULES_REMEMBERED_MAX: Final = 8_192

# Nominal times of cron expressions that are remembered, of about 300 bytes each: many schedules share an expression.
NOMINALS_REMEMBERED_MAX: Final = 16_384

# Remembered hints for unknown headers: a producer repeats its typo in each request.
HINTS_REMEMBERED_MAX: Final = 1_024
