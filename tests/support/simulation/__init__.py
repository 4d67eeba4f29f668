"""The simulation: the sidecar's own code on a simulated Kafka, with simulated clocks, disks and processes; one seed is
one schedule.

`run.run_seed` runs a schedule; `python -m support.simulation --seed N` does so from the command line.
"""
