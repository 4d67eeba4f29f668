"""Who may use the HTTP port: host names, tokens, signatures between processes, TLS.

Imports what `http` may import, and of `http` `limits`.
Thread rule: the event loop of the server; signing a request and the context of a client are for any thread.
"""
