"""Tools for developers: `dev_broker` runs a local Kafka, `demo` demonstrates Postdate, `bench` measures it.

Only the command line and `postdate.testing` import them; the daemon does not. They may use every public interface,
and start threads.
"""
