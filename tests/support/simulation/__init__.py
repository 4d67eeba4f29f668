"""The simulation: the sidecar's own code over a simulated Kafka, clocks, disks and processes, one seed = one schedule.

`run.run_seed` runs one; `python -m support.simulation --seed N` does so from the command line.
"""
