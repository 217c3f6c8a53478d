"""A federation that is already running somewhere: the same questions, nothing simulated."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Self

from protocols.aggregation import aggregator_named
from protocols.errors import LocalError
from protocols.privacy.mechanisms import parse_epsilon
from protocols.run.messages import Role
from protocols.run.question import Question
from protocols.statistics import Statistic
from protos import tally_pb2 as pb
from protos.identity_files import read_identity
from servers.metrics import parse_address
from simulation.analyst import Analyst
from simulation.question_key import check_resumed, keyed
from simulation.result import Result
from simulation.runtimes import Opened, Progress, Report
from simulation.statement import Setting, describe_data


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
        fresh: bool = False,
        key: str | None = None,
        begun: Callable[[str], None] = lambda _: None,
    ) -> Result:
        """Asks one question. Raises `LocalError` for a bad one, `RunFailed` if it cannot finish.

        `begun` is told the question's key before it is put: `resume` finds the answer under it.
        The same question under the same `key` is not asked again: it gets the same answer.
        """
        if set(statistic.bounded) - statistic.column_bounds.keys():
            raise LocalError(
                "give --lower and --upper: bounds of deployed data must be known beforehand"
            )
        statistic = statistic.asked_of(self._aggregator.name)
        there = self._analyst.describe(deadline)
        question = Question(
            statistic,
            self._spec,
            parse_epsilon(str(epsilon)),
            self._setting(there).placement(noise, statistic),
            unit=unit,
            minimum=minimum,
            deadline=deadline,
            key=key or "",
            delta=delta,
            fresh=fresh,
        )
        question = question if key else keyed(question)
        begun(question.key)
        return self._result(self._analyst.ask_or_cancel(question, report), question)

    def resume(self, key: str, report: Report = _quiet) -> Result:
        """The answer to what was asked under a key before. Raises as `run` does.

        A key that `run` made says what that was; of one that a person chose it is the coordinator
        that says so, and the result tells what.
        """
        opened = self._analyst.resume(key, report)
        if opened.question is None:
            raise LocalError("the coordinator does not say what it was asked")
        check_resumed(key, opened.question)
        return self._result(opened, opened.question)

    def _result(self, opened: Opened, question: Question) -> Result:
        """Of the federation as it was when it was asked, not as it is now."""
        query, proof = opened.prove(question)
        aggregator = aggregator_named(question.aggregator)
        setting = Setting(aggregator, query.parties, query.servers, query.most, query.records)
        release = aggregator.release(query)
        return Result(
            question.statistic.asked_as,
            proof.statistic.decode(opened.total, opened.records, exact=release.exact),
            None,
            setting.privacy(question, release),
            {
                "parties": query.parties,
                "servers": query.servers,
                "aggregator": question.aggregator,
                "runtime": "deployed",
                "network": "none",
                "seed": None,
            },
            opened.bill,
            opened.seconds,
            release.deviations(opened.total, opened.records, len(opened.contributors)),
            tuple(setting.notes(question, opened)),
            caught=opened.caught,
            server_cpu_seconds=opened.server_cpu_seconds,
            reused=opened.reused,
            lost_pairs=opened.lost_pairs,
            key=question.key,
            refusals=opened.refusals,
            data=describe_data("deployed", question.statistic, query.records),
            proof=proof,
            style=question.statistic.style,
        )

    def _setting(self, there: pb.Description) -> Setting:
        return Setting(
            self._aggregator, there.parties, there.servers, there.most_records, there.records
        )
