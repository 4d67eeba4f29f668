"""Access to the HTTP port: host names, tokens, signatures between processes, TLS.

Imports what `http` may import, and `http.limits`.
Thread rule: the event loop of the server. Any thread may sign a request or create the TLS context of a client.
"""
