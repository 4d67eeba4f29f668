"""The rules of recurring schedules: which deliveries and skips follow from a request, its controls and their fates.

    schedule_events        inputs and outputs of the judge: request, events, position
    schedule_findings      collects figures, problems and lateness
    schedule_holes         judges numbers without a fate
    schedule_dead_letters  judges dead letters
    pauses                 derives pauses from their fates
    numbered_deliveries    judges one series of numbers: occurrences, or the extra deliveries of one control
    extra_deliveries       judges the extra deliveries of triggers and backfills
    schedules              judges one schedule
    occurrences            applies `schedules` to the rows of all schedules
    backfills              compares fates `backfilled` with the times that their controls request

Imports what `rules` may import, and `rules.times`. Start reading at `schedules.judge_schedule`.
Thread rule: none. Only `occurrences` and `backfills` use pyspark; the others run in Spark's Python workers.
"""
