"""Pairs of records across parties: circuits, kernels, noise, garbling and who meets whom."""
