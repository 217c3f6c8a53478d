"""The machinery of a run: questions, queries, machines, messages, meters, receipts, policies."""
