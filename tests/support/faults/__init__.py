"""Faults injected into real processes and a real broker, and the soak test that injects all of them under a load.

`rig` starts two sidecars under a steady `load`. The modules `*_faults` inject faults, with the help of `proxy` and
`proxied_broker` between sidecars and Kafka, of `small_disk` and `damage` for disks, and of `intruding_clients`.
`follower` records all topics in a `request_ledger`, which `judgement` checks. `soak` runs all of this, and `report`
formats the result.
"""
