"""Requests: the headers of a record become a request, or a reason to refuse it.

    selection         selects the pending messages on which a bulk control acts
    retry_policies    compute the time for which a returned message waits
    request           one parsed request
    rules             the rules of one request topic: allowed targets, the horizon, the levels
    returns           requests by which a consumer returns a message
    parser            parses requests. Start reading here

Imports `values`, `schedules`, `dialects`, `dispatch_log` and the flat modules before them. Pure and deterministic, so
that ingest, recovery and audit agree. Thread rule: everything may be called from any thread.
"""
