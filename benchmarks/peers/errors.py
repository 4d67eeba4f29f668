"""The one error of this program."""

from __future__ import annotations


class PeerFailed(Exception):
    """A system cannot be fetched, started or measured; the message gives the reason and the remedy."""
