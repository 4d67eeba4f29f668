"""Schedules: requests whose message is delivered again and again, by a cron expression or at a fixed interval.

    expressions   cron expressions, and the wall-clock times that match them
    zones         clock changes of a zone, from the pinned `tzdata` package
    schedule      the headers of a schedule, read and checked
    occurrences   the nominal times of a schedule in order, each with its number
    pauses        which nominal times lie in a pause
    extras        deliveries of a schedule beside its next one
    due           which due occurrences are delivered, and which are skipped
    words         a schedule in English words, for people

Each module imports only those above it. The package imports `values` and the flat modules of `wire` before it. Pure
functions over texts and ints: no clock, no Kafka. Thread rule: everything may be called from any thread. The audit has
an implementation that shares no code with this package.
"""
