"""The time-out of tests that wait for a condition. It only detects hanging."""

from __future__ import annotations

#: s. Nothing that is waited for takes a tenth of it on this project's own machines; other machines are several times
#: slower, and do other things as well. Less than the five minutes after which Kafka's clients look at everything anew
#: by themselves, for then what nobody told them would be found all the same.
WAIT_TIMEOUT_S = 240.0
