"""Clients that test Postdate from outside: the helpers of `clients/`, and foreign libraries in other languages."""
