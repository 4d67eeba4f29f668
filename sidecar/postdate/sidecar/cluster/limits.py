"""Bounds of other requests to Kafka, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# A dead letter is larger than its request: reason, detail and origin fit 64 KiB with the longest names Kafka allows.
OWN_TOPIC_MESSAGE_MARGIN_BYTES: Final = 64 * 1024

# How long a command or a change over HTTP waits for an acknowledgement, for records or for a new topic.
COMMAND_TIMEOUT_S: Final = 15.0
