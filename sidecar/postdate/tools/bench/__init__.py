"""`postdate bench`: throughput and lateness, compared with a raw copy of the same records in the same run.

The package owns the sidecars, the load and the topics of each run; the command that calls it owns the broker. `cases`
lists the cases; `steady`, `scale`, `hand_over`, `bulk` and `schedules` have the longer ones. `environment` starts the
processes of a case, `journal` reads the records that they wrote, and `figures`, `report` and `chart` present the
results.

Imports what `tools` may import, and `dev_broker`.
Thread rule: the main thread. `steady.LoadGenerator` and the producers of `baselines.raw_steady` have separate threads.
"""
