"""Seeded fuzzing of everything that reads bytes of strangers.

`mutations` spoils, `targets` says what is read and what may come of it, `driver` goes through cases, each of which its
number replays.
"""
