"""The time-out of tests that wait for a condition. It only detects hanging."""

from __future__ import annotations

#: Seconds: no wait on this project's own machines takes a tenth of this; other machines are several times slower, and
#: run other programs as well. It is less than the five minutes after which Kafka's clients refresh their metadata: with
#: a longer time-out, the refresh would hide that the product fails to notice a change.
WAIT_TIMEOUT_S = 240.0
