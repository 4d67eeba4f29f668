"""Postdate as users run it: processes, commands, examples, earlier releases, Helm, and pods."""
