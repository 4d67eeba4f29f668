"""The state of a simulated run: machines, processes, disks and clocks; and its scheduler."""
