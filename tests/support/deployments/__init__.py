"""Postdate as its users run it: processes, commands, examples, other releases, Helm, and pods."""
