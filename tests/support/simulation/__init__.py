"""The simulation: the sidecar's own code on a simulated Kafka, with simulated clocks, disks and processes; one seed is
one run.

`run.run_seed` simulates a run; `python -m support.simulation --seed N` does so from the command line.
"""
