"""Bounds of changes of a timer index, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# Entries for which one step chooses a time within their windows: at 20 us each, deliveries wait 10 ms.
DEFERRED_ENTRIES_MAX: Final = 500
