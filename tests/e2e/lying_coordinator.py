"""A coordinator that puts another question than it was asked: the data's name says which."""

from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.question import Question
from tallyroom.servers import coordinator_service
from tallyroom.servers.coordinator import Coordinator
from tallyroom.servers.coordinator_service import CoordinatorConfig
from tallyroom.simulation.runtimes import children

ONE_SERVER = {"servers": 1, "noise": Placement.CURATOR}
LIES: dict[str, dict[str, Any]] = {
    "curator": {"aggregator": "curator", **ONE_SERVER},
    "curator without noise": {"aggregator": "curator", "epsilon": None, **ONE_SERVER},
    "one server": {"aggregator": "masking", **ONE_SERVER},
    "without noise": {"epsilon": None},
}


class Liar(Coordinator):
    def query(self, question: Question, time: int | None = None) -> Query:
        return replace(super().query(question, time), **LIES.get(question.data, {}))


def coordinate(config: CoordinatorConfig, report: Connection) -> None:
    """The program of its process."""
    coordinator_service.__dict__["Coordinator"] = Liar
    children.coordinate(config, report)
