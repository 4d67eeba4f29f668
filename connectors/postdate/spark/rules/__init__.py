"""The verdicts, and the rules that decide them. The packages and modules in import order:

    times/               nominal times: cron expressions, time zones
    schedules/           deliveries and skips of recurring schedules
    verdicts             the names of the verdicts, and the form of a rule
    request_histories    one row for each request, with the effects of other requests on it
    mismatches           content of deliveries
    endings              the end of a request, or a missing end
    lost_moves           due times set by fates that have left the dispatch log
    unread_causes        causes of fates that no run of an audit has read
    claims               fates that another request caused
    survivors            fates that name a survivor
    verdict_checks       answers against requests and fates
    unanswered           fates without a required answer
    ordering             order of messages of one target and key

May import the flat modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`,
`records`, `job`; not `bulk`, whose requests an audit judges like all others. Each module and package may import those
listed before it.
Thread rule: none; functions from rows and columns to rows and columns. Only `ordering` and
`schedules.occurrences` run jobs.
"""
