"""Grids of simulated runs: a specification, a journal of what is done, a table and its plot."""
