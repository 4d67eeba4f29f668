"""Tools for developers: `dev_broker` runs a Kafka here, `demo` shows Postdate at work, `bench` measures it.

Only the command line and `postdate.testing` import them; the daemon does not. They may use whatever a user may, and
threads of their own.
"""
