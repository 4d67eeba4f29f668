"""The commands that send requests: messages, schedules, and controls of them.

Imports what `cli` may import, the modules of `cli` that all commands share, and `operation`.
Thread rule: the main thread.
"""
