"""The API of the HTTP port: routes, their handlers, their description, and the page.

Imports what `http` may import, and of `http` the flat modules and the packages before it: `access`,
`metrics`, `queries`.
Thread rule: a thread of the server.
"""
