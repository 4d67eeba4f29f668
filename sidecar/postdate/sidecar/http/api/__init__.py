"""The API of the HTTP port: routes, their handlers, their description, and the page.

Imports what `http` may import, and the flat modules and the packages `access`, `metrics` and `queries` of `http`.
Thread rule: the event loop or a pool thread of the server.
"""
