"""The HTTP server of a port: its thread, its connections and their limits.

Imports what `http` may import, and all other modules and packages of `http`.
Thread rule: the event loop of the server; the main thread starts and stops it.
"""
