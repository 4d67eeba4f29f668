"""The closed list of metrics, and their values in a scrape.

Imports what `http` may import, and the flat modules of `http`.
Thread rule: a thread of the server.
"""
