"""The package's own tests of its figure: its contract."""

from coins import FIGURE

from tallyroom.extend import FigureContract


class TestCoins(FigureContract):
    figure = FIGURE
