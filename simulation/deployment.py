"""A federation that is already running somewhere: the same questions, nothing simulated."""

import os
from fractions import Fraction
from pathlib import Path
from typing import Self

from protocols.aggregation import aggregator_named
from protocols.errors import LocalError
from protocols.messages import Role
from protocols.privacy.mechanisms import parse_epsilon
from protocols.statistics import Statistic
from protos import tally_pb2 as pb
from protos.identity_files import read_identity
from servers.coordinator import Question
from servers.metrics import parse_address
from simulation.analyst import Analyst
from simulation.result import Result
from simulation.runtimes import Progress, Report
from simulation.statement import Setting


def _quiet(_: Progress) -> None:
    pass


class Deployment:
    """The coordinator at host:port, asked with the analyst's identity in a folder.

    There is no truth to compare with: results have none, and no error.
    """

    def __init__(self, coordinator: str, identity: Path, aggregator: str = "additive") -> None:
        self._aggregator = aggregator_named(aggregator)
        self._spec = aggregator
        parse_address(coordinator)
        self._analyst = Analyst(coordinator, read_identity(identity, Role.ANALYST))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._analyst.close()

    def run(
        self,
        statistic: Statistic,
        epsilon: float | str | Fraction,
        noise: str | None = None,
        unit: str = "record",
        minimum: int | None = None,
        deadline: float = 30.0,
        report: Report = _quiet,
        delta: float = 0.0,
    ) -> Result:
        """Asks one question. Raises `LocalError` for a bad one, `RunFailed` if it cannot finish."""
        if statistic.bounded and (statistic.lower is None or statistic.upper is None):
            raise LocalError(
                "give --lower and --upper: bounds of deployed data must be known beforehand"
            )
        there = self._analyst.describe(deadline)
        question = Question(
            statistic,
            self._spec,
            parse_epsilon(str(epsilon)),
            self._setting(there).placement(noise, statistic),
            unit=unit,
            minimum=minimum,
            deadline=deadline,
            key=os.urandom(8).hex(),
            delta=delta,
        )
        opened = self._analyst.ask(question, report)
        # Asked again: parties may have joined while the question waited for them.
        there = self._analyst.describe(deadline)
        setting = self._setting(there)
        release = setting.release(question)
        return Result(
            statistic.name,
            release.query.statistic.decode(opened.total, opened.records, exact=release.exact),
            None,
            setting.privacy(question, release),
            {
                "parties": there.parties,
                "servers": there.servers,
                "aggregator": self._spec,
                "runtime": "deployed",
                "network": "none",
                "seed": None,
            },
            opened.bill,
            opened.seconds,
            release.deviations(opened.total, opened.records),
            tuple(setting.notes(question, opened)),
            caught=opened.caught,
            server_cpu_seconds=opened.server_cpu_seconds,
            refusals=opened.refusals,
        )

    def _setting(self, there: pb.Description) -> Setting:
        return Setting(
            self._aggregator, there.parties, there.servers, there.most_records, there.records
        )
