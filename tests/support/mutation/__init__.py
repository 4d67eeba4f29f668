"""Mutation testing: small changes of the product, each of which a test must detect.

`changes` makes the changes, and `driver` runs the tests over each of them. `undetectable`, `undetectable_dispatch` and
`undetectable_state` list the changes that no test can detect, in the form of `declaration`. `report` computes the
scores. `deliberate` lists handwritten changes that a test must always detect. `make mutants` runs both.
"""
