"""Mutation testing: small changes of the product, each of which a test must detect.

`changes` makes the changes, and `driver` runs the tests over each of them. `undetectable` and the modules beside it
list those that no test can detect, in the form of `declaration`. `report` computes the scores. `deliberate` lists
changes by hand that must always be detected. `make mutants` runs both.
"""
