"""Bounds of other requests to Kafka, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# A dead letter is larger than its request: reason, detail and origin fit 64 KiB with the longest names Kafka allows.
OWN_TOPIC_MESSAGE_MARGIN_BYTES: Final = 64 * 1024

# How long a command waits for a broker before it reports that the broker is unreachable.
COMMAND_TIMEOUT_S: Final = 15.0
