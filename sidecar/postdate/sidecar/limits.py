"""Bounds that several packages of the sidecar share, each with its unit in its name and the reason for its value.

A bound is not an option: changing one changes what was measured or promised. Options are in `config`.
"""

from __future__ import annotations

from typing import Final

# Samples kept: only those that could still become the largest, usually a few; the bound is for unusual cases.
CLOCK_SAMPLES_MAX: Final = 4_096

# The estimate of the broker's clock drifts with the local oscillator, a few ppm: some milliseconds in an hour.
CLOCK_SAMPLE_AGE_MS_MAX: Final = 3_600_000

# If a broker stamps a request this far ahead of its estimated time, its clock was set forward. Brokers of one cluster
# differ by less; if they differ by more, an unnecessary record is written at most every CLOCK_DOUBT_MS.
CLOCK_AHEAD_MS_MAX: Final = 500
CLOCK_DOUBT_MS: Final = 10_000

# Pauses between attempts while Kafka does not answer: short enough to recover soon, long enough not to overload it.
BACKOFF_MS_MIN: Final = 100
BACKOFF_MS_MAX: Final = 5_000

# The interval at which a repeated warning or error is logged, and the number of different texts that are remembered.
LOG_REPEAT_S: Final = 10.0
LOG_TEXTS_MAX: Final = 4_000

# The interval for lines of the client library: while a broker is away, each client logs many lines a second.
CLIENT_LOG_REPEAT_S: Final = 60.0
