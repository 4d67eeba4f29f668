"""The sidecar with one safeguard removed: the simulation must detect each mutation, whose docstring states the
defect."""
