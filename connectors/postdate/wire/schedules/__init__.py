"""Schedules: requests whose message is delivered again and again, by a cron expression or at a fixed interval.

    schedule      the headers of a schedule, read and checked
    occurrences   the nominal times of a schedule in order, each with its number
    due           which due occurrences are delivered, and which are skipped
    pauses        which nominal times lie in a pause
    expressions   cron expressions, and the wall-clock times that match them
    zones         clock changes of a zone, from the pinned `tzdata` package

Each module imports only those below it, `due` all others. Pure functions over texts and ints: no clock, no Kafka.
Everything may be called from any thread. The audit has an implementation that shares no code with this package.
"""
