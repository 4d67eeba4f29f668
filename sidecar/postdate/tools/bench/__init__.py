"""`postdate bench`: throughput and lateness, compared with a raw copy of the same records in the same run."""
