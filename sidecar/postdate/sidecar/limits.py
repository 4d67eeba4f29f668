"""Bounds of the shared modules of the sidecar, each with its unit in its name and the reason for its value. Packages
use some of them, too.

A bound is not an option: changing one changes what was measured or promised. Options are in `config`.
"""

from __future__ import annotations

from typing import Final

# The most samples that are kept. Only samples that can still become the largest are kept, usually a few; the bound is
# for unusual cases.
CLOCK_SAMPLES_MAX: Final = 4_096

# The estimate of the broker's clock drifts with the local oscillator, a few ppm: some milliseconds in an hour.
CLOCK_SAMPLE_AGE_MS_MAX: Final = 3_600_000

# If the timestamp of a request is further ahead of the estimated time than this, the broker's clock was probably set
# forward. The clocks of one cluster usually differ by less. If they differ by more, an unnecessary record is written at
# most every CLOCK_DOUBT_MS.
CLOCK_AHEAD_MS_MAX: Final = 500
CLOCK_DOUBT_MS: Final = 10_000

# Pauses between attempts after a failure of Kafka: short enough to recover soon, long enough not to overload it.
BACKOFF_MS_MIN: Final = 100
BACKOFF_MS_MAX: Final = 5_000

# The shortest time between two log lines of a repeated warning or error, and the number of texts that are remembered.
LOG_REPEAT_S: Final = 10.0
LOG_TEXTS_MAX: Final = 4_000

# The same for lines of the client library: while a broker is unreachable, each client logs many lines a second.
CLIENT_LOG_REPEAT_S: Final = 60.0
