"""Imported once by the fork server, before it forks: that is all this module is for."""

from tallyroom.simulation.runtimes.children import preload

preload()
