"""The closed list of metrics, and their values in a scrape.

Imports what `http` may import, and of `http` the flat modules.
Thread rule: a thread of the server.
"""
