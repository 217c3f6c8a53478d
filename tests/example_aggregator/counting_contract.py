"""The package's own tests of its runtime: the contract."""

from counting import Counting

from tallyroom.extend import RuntimeContract


class TestCounting(RuntimeContract):
    runtime = Counting
