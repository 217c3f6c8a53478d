"""Samplers, mechanisms with their privacy maps, and the rules of the ledger."""
