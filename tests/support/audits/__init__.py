"""Histories that the audit judges: written record by record, generated at random, forged on real topics, or large."""
