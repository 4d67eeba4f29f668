"""The commands for developers: a broker, the demonstration, the benchmark.

Imports what `cli` may import, and the modules of `cli` that all commands share.
Thread rule: the main thread.
"""
