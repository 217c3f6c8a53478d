"""The machinery of a run: queries, machines, messages, meters, receipts, policies."""
