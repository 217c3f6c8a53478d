"""Durable files that outlive a process: ledgers, journals, what parties submitted."""
