"""A federation that is already running somewhere: the same questions, nothing simulated."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Self

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.errors import Interrupted, LocalError
from tallyroom.protocols.plans.interval import NOISE, check_covers
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import LAPLACE
from tallyroom.protocols.run.law_choice import LawChoice
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.bounded import columns_to_bound, known_bounds
from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.protocols.studies.budget import Grant
from tallyroom.protocols.studies.contract import Study
from tallyroom.protocols.studies.settling import settled, words_of
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.identity_files import read_identity
from tallyroom.servers.metrics import parse_address
from tallyroom.simulation.analyst import Analyst
from tallyroom.simulation.asking import AskingOptions, Setting, check_resumed, keyed
from tallyroom.simulation.result import Result
from tallyroom.simulation.runtimes import Opened, Report, silent
from tallyroom.simulation.statement import answered
from tallyroom.simulation.study import StudyQuestion, conduct, is_study_key, new_key

DEPLOYED = {"runtime": "deployed", "network": "none", "seed": None}
Begun = Callable[[str, bool], None]


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

    def _puts(
        self, asked: Statistic | Study, whole: Grant, options: AskingOptions
    ) -> Statistic | Study:
        """What is put here: a study that the aggregator answers at once is a single question, and a
        quantile that is better found in two is a study."""
        if isinstance(asked, Study):
            return asked.asked_of(self._aggregator.offers)
        if not isinstance(asked, Quantile | Auc):
            return asked
        there = self._setting(self._analyst.describe(options.deadline), self._spec)
        return settled(asked, there.public(options, whole.loss), {})

    def run(
        self,
        statistic: Statistic | Study,
        epsilon: float | str | Fraction,
        noise: str | None = None,
        unit: str = "record",
        min_parties: int | None = None,
        deadline: float = 30.0,
        report: Report = silent,
        delta: float = 0.0,
        fresh: bool = False,
        noise_law: str = LAPLACE,
        security: str = "",
        questions: int = 1,
        key: str | None = None,
        begun: Begun = lambda _, __: None,
        interval: str = NOISE,
    ) -> Result:
        """Asks one question, or those of a study, which share ε and δ. Raises `LocalError` for a
        bad one, `RunFailed` if it cannot finish.

        `begun` is told the question's key before it is put, and whether it is a study's: `resume`
        finds the answer to a question under it.
        The same question under the same `key` is not asked again: it gets the same answer. So do
        those of the same study under its key, as far as it had come. `interval` is as in
        `Federation.run`.
        """
        check_covers(interval)
        whole = Grant(PrivacyLoss.granted(str(epsilon), delta))
        options = AskingOptions(
            noise, unit, min_parties, deadline, fresh, report, noise_law, security, questions
        )
        wanted, statistic = statistic, self._puts(statistic, whole, options)
        if not isinstance(statistic, Study):
            named = (lambda asked: replace(asked, key=key)) if key else keyed
            result = self._ask(statistic, self._spec, whole, options, named, begun)
            result = replace(result, notes=(*result.notes, *words_of(wanted, statistic)))
            return result.showing(interval)
        study_key = key or new_key()
        study = statistic.of_records(self._analyst.describe(deadline).records)

        def ask_one(asked: StudyQuestion) -> Result:
            ask, how = asked.ask, options.of(asked)
            named = partial(keyed, salt=asked.salt)
            return self._ask(ask.statistic, ask.aggregator or self._spec, asked.grant, how, named)

        def rehearse(asked: StudyQuestion) -> float:
            ask, how = asked.ask, options.of(asked)
            spec = ask.aggregator or self._spec
            there = self._analyst.describe(deadline)
            setting = self._setting(there, spec)
            query = setting.query(self._question(setting, ask.statistic, asked.grant, how).question)
            return aggregator_named(query.aggregator).mechanism(query).delta

        begun(study_key, True)
        try:
            result = conduct(study, whole.loss, study_key, ask_one, rehearse, report)
            return result.showing(interval)
        except Interrupted as error:
            words = f"{error}; the same command with --key {study_key} goes on with the study"
            raise Interrupted(words) from None

    def _ask(
        self,
        statistic: Statistic,
        spec: str,
        grant: Grant,
        options: AskingOptions,
        named: Callable[[Question], Question],
        begun: Begun = lambda _, __: None,
    ) -> Result:
        """`named` gives the question its key."""
        there = self._analyst.describe(options.deadline)
        question, why = self._question(self._setting(there, spec), statistic, grant, options)
        question = named(question)
        begun(question.key, False)
        result = self._result(self._analyst.ask_or_cancel(question, options.report), question)
        return replace(result, notes=(*result.notes, why)) if why else result

    def _question(
        self,
        setting: Setting,
        statistic: Statistic,
        grant: Grant,
        options: AskingOptions,
    ) -> LawChoice:
        if set(columns_to_bound(statistic)) - known_bounds(statistic).keys():
            raise LocalError(
                "give --lower and --upper: bounds of deployed data must be known beforehand; "
                "--bounds private finds them for a share of ε"
            )
        return setting.question(statistic, grant, options)

    def resume(self, key: str, report: Report = silent) -> Result:
        """The answer to what was asked under a key before. Raises as `run` does.

        A key that `run` made says what that was; of one that a person chose it is the coordinator
        that says so, and the result tells what.
        """
        if is_study_key(key):
            raise LocalError(f"a study goes on with the same command as before and --key {key}")
        opened = self._analyst.resume(key, report)
        if opened.question is None:
            raise LocalError("the coordinator does not say what it was asked")
        check_resumed(key, opened.question)
        return self._result(opened, opened.question)

    def _result(self, opened: Opened, question: Question) -> Result:
        result = answered(question, opened, DEPLOYED)
        return replace(result, key=question.key)

    @staticmethod
    def _setting(there: pb.Description, spec: str) -> Setting:
        return Setting(spec, there.parties, there.servers, there.most_records, there.records)
