"""Grids of simulated runs: a specification, a journal of finished runs, a table and its plot."""
