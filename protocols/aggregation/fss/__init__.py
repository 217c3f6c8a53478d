"""Comparison keys: parties upload once, servers count at any threshold."""
