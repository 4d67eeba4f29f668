"""Seeded fuzzing of every parser of foreign bytes.

`mutations` corrupts valid input. `targets` lists the parsers and their permitted results. `driver` runs the cases; the
number of a case replays it.
"""
