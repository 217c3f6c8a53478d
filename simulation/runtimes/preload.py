"""Imported once by the fork server, before it forks: that is all this module is for."""

from simulation.runtimes.children import preload

preload()
