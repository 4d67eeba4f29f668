"""Rules for the repository's code, documents, chart and test lanes, which tests apply."""
