"""`postdate bench`: how fast and how late, held against a raw copy of the same records in the same run."""
