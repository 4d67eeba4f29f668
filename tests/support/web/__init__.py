"""HTTP from outside: requests, floods of connections, and pages in a browser."""
