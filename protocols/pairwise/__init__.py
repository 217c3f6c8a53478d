"""Pairs of records across parties: circuits, kernels, noise, garbling and who meets whom.

Semi-honest garblers: one that deviates can make the released total tell its peer's record.
"""
