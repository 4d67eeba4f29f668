"""The simulation: runs the sidecar's own code on a simulated Kafka, with simulated clocks, disks and processes. A seed
determines a run.

`run.run_seed` simulates a run; `python -m support.simulation --seed N` does so from the command line.
"""
