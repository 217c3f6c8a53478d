"""Garbled circuits: building and evaluating them, oblivious transfer, two-party sessions."""
