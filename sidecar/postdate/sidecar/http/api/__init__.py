"""What the HTTP port answers: the routes, their handlers and their description, and the page.

Imports what `http` may import, and of `http` the flat modules and the packages before it: `access`,
`metrics`, `queries`.
Thread rule: a thread of the server.
"""
