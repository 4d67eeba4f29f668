"""The sidecar with one safeguard removed: the simulation must detect each of these mutations."""
