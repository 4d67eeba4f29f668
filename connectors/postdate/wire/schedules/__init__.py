"""Schedules: requests whose message is delivered again and again, by a cron expression or at a fixed interval.

    expressions   cron expressions, and the wall-clock times that match them
    zones         clock changes of a zone, from the pinned `tzdata` package
    schedule      the headers of a schedule, read and checked
    occurrences   the nominal times of a schedule in order, each with its number
    pauses        the pauses of a schedule, in which nominal times are skipped
    extras        extra deliveries of a schedule, which triggers and backfills request
    due           decides which due occurrences are delivered, and which are skipped
    words         describes a schedule in English words

Each module imports only modules listed before it. The package imports `values` and the flat modules of `wire` before
it. Pure functions over texts and ints: no clock, no Kafka. Thread rule: everything may be called from any thread. The
audit has an implementation that shares no code with this package.
"""
