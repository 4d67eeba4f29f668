"""The time-out of tests that wait for a condition. It only detects hanging."""

from __future__ import annotations

#: Seconds: on this project's own machines no wait takes a tenth of it; other machines are several times slower, and run
#: other programs as well. It is less than the five minutes after which Kafka's clients refresh their metadata: after
#: that they would also find a change of which nothing had notified them, and the test would not detect the defect.
WAIT_TIMEOUT_S = 240.0
