"""Which pairs of records are compared, and what they say about all pairs."""
