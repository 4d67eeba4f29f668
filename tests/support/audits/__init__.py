"""Histories for the audit to judge: written record by record, generated at random, forged on real topics, or large."""
