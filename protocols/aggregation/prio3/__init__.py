"""Prio3: sums of records that servers verify without seeing them."""
