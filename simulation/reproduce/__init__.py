"""Figures of the papers again, each with a verdict that is computed from its numbers."""
