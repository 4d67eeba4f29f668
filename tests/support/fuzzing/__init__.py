"""Seeded fuzzing of every parser of foreign bytes.

`mutations` corrupts valid input. `targets` lists the parsers and their permitted results. `driver` runs the cases; a
case can be replayed by its number.
"""
