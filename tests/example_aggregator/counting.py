"""A runtime of a package of its own: all in one process, and it counts what it was asked."""

from typing import ClassVar

from tallyroom.protocols.run.question import Question
from tallyroom.simulation.runtimes.contract import Layout, Opened, Report
from tallyroom.simulation.runtimes.inprocess import InProcess


class Counting(InProcess):
    """`inprocess` that counts questions: a place for a tracer, or a link with a delay."""

    name: ClassVar[str] = "counting"
    summary: ClassVar[str] = "all roles in one process, and questions are counted"

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.asked = 0

    def ask(self, question: Question, report: Report) -> Opened:
        self.asked += 1
        return super().ask(question, report)
