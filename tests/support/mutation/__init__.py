"""Mutation testing: small changes of the product, each of which a test must detect.

`changes` makes the changes, `driver` runs the tests over each of them, `undetectable` lists those that no test can
detect, `report` computes the scores. `deliberate` lists changes by hand that must always be detected. `make mutants`
runs both.
"""
