"""Rules for the repository's code, documents, chart and test lanes; tests apply them."""
