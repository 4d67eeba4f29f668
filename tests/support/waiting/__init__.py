"""Verdicts that do not depend on how busy the machine is: time-outs, repeated rounds, and waits of other programs."""
