"""Machines, processes, disks and clocks of a simulated world, and the scheduler."""
