"""Durable files that outlive a process: ledgers, journals, and what parties submitted."""
