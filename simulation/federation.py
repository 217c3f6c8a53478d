"""The Python API: a federation of n parties and m servers to put questions to."""

import dataclasses
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

from tallyroom.parties.dataset import REFUSE, Dataset
from tallyroom.parties.frames import Data, dataset_of
from tallyroom.parties.peer_config import PeerConfig
from tallyroom.parties.schema import names_of
from tallyroom.protocols import studies
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Aggregator
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.pairwise.roles.machines import PairwiseMachines
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.plans.interval import NOISE, check_covers
from tallyroom.protocols.privacy.ledger import Filter, parse_cap
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import LAPLACE
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.run.machines import own_machines
from tallyroom.protocols.run.policy import Policy
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Estimate, Statistic, statistic_named
from tallyroom.protocols.statistics.bounded import (
    clipped_records,
    known_bounds,
    with_published_bounds,
)
from tallyroom.protocols.statistics.contract import ReadsNames, asked_as
from tallyroom.protocols.statistics.grouped import Grouped, grouped
from tallyroom.protocols.studies.budget import Grant
from tallyroom.protocols.studies.contract import Study
from tallyroom.protocols.studies.settling import settled, words_of
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation.asking import AskingOptions, Setting, keyed
from tallyroom.simulation.misbehaviour import HONEST, Cheat, Misbehaviour, misbehaviour
from tallyroom.simulation.networks.network import network_of
from tallyroom.simulation.prediction import predicted_links
from tallyroom.simulation.proc import cpu_times, used_since
from tallyroom.simulation.result import Result
from tallyroom.simulation.runtimes import Layout, Opened, Report, Runtime, runtime_named, silent
from tallyroom.simulation.statement import answered, beside, noiseless, with_categories
from tallyroom.simulation.study import StudyQuestion, conduct

DEFAULT_DATA = "synthetic:scores?n=2000"
BLOCK_HOSTS = 4


def _check_cheats(script: Misbehaviour, query: Query) -> None:
    """Raises `LocalError` for a lie that nobody can tell in this computation."""
    own, name = own_machines(query.plan), query.statistic.name
    if own is not None and script.cheaters(Cheat.OUT_OF_RANGE):
        raise LocalError(f"{name} is computed in circuits: no data is out of range")
    if script.cheaters(Cheat.GARBLED_WEIGHT) and not isinstance(own, PairwiseMachines):
        raise LocalError(f"garbled-weight is a lie of parties that garble: {name} has none here")


def of_groups(
    asked: Statistic | Study,
    where: str,
    by: Sequence[str],
    groups: Mapping[str, str],
    data: Dataset | None,
) -> Statistic:
    """The question put to a part of the records and to groups of them; where `groups` does not name
    those, the data set may. Raises `LocalError`."""
    if isinstance(asked, Study):
        raise LocalError(f"{asked.title} has no --where and no --by: it asks several questions")
    published = {} if data is None else published_groups(data)
    return grouped(asked, where, by, {**published, **groups})


def published_groups(data: Dataset) -> dict[str, str]:
    """The names that a data set publishes, by column."""
    return names_of(data.schema) | data.categories


class _Settled(NamedTuple):
    """A question, the query that it would be, and why its noise is of this law, if that was left
    open."""

    question: Question
    query: Query
    why: str


class Federation:
    """A simulated federation. Use it as a context manager: leaving it stops what it started.

    `data` is a DATA SPEC as on the command line, a file's `Path`, a pandas or polars frame, a
    mapping of columns or an array, which is dealt to `parties` evenly; or a list or mapping of
    frames, one per party. `missing` is what becomes of records of such data that lack a value:
    `refuse`, `drop`, or a number that takes its place.
    `hosts` is how many party hosts share the parties; left out, every party has its own process
    up to 100 of them, and more are dealt to 4 hosts in blocks, as all are in a Ray cluster. `seed`
    makes the run reproducible, hence not private. `cap` is the most that servers will release:
    ε, or as `parse_cap` reads it.

    `dropout` is the fraction of parties that join and do not answer, chosen by the seed or at
    random: runs wait for them until their deadline. With `drop_after`, they fall silent only after
    the messages of so many phases.
    `cheats` are parties that cheat, as `PARTY:KIND`, or `server-0:no-noise`
    (`simulation.misbehaviour`). The truth that
    results are compared with is that of the parties in the sum, whose records are as they are.
    `peer` is how parties that meet reach each other: `direct`, or `relay` through the coordinator,
    sealed; left out, containers take the relay. `policy` is what all parties agree to; left out,
    they take part in whatever is asked. `cap_delta` is the most δ that servers release.
    `network` is what is emulated between processes: `lan`, `wan`, `mobile`, conditions, or lines by
    role, such as `party=mobile,server=lan`.
    """

    def __init__(
        self,
        parties: int | None = None,
        servers: int | None = None,
        aggregator: str = "additive",
        runtime: str = "inprocess",
        data: Data = DEFAULT_DATA,
        hosts: int | None = None,
        seed: int | None = None,
        cap: float | str | None = None,
        store: Path | None = None,
        dropout: float = 0.0,
        drop_after: int = 0,
        cheats: Iterable[str] = (),
        peer: str | None = None,
        policy: Policy | None = None,
        cap_delta: float | None = None,
        network: str | None = None,
        missing: str = REFUSE,
    ) -> None:
        self._aggregator = aggregator_named(aggregator)
        self._spec = aggregator
        kind = runtime_named(runtime)
        self.data = dataset_of(data, missing)
        self.holdings = self.data.deal(parties)
        self.servers = self._aggregator.servers if servers is None else servers
        if self.servers < 1:
            raise LocalError("a federation needs at least one server")
        self.seed = seed
        count = len(self.holdings.ids)
        if hosts is not None and not 1 <= hosts <= count:
            raise LocalError(f"{hosts} hosts cannot share {count} parties")
        max_records_per_party = int(self.holdings.counts.max())
        self._setting = Setting(
            aggregator,
            count,
            self.servers,
            max_records_per_party,
            self.holdings.rows,
        )
        if drop_after < 0:
            raise LocalError(f"--drop-after {drop_after}: parties send 0 messages or more")
        script = HONEST
        if dropout or (cheats := tuple(cheats)):
            script = misbehaviour(count, dropout, drop_after, cheats, seed)
        self.misbehaviour = script
        if script.servers and runtime != "inprocess":
            raise LocalError("--cheat server-0:… is for --runtime inprocess")
        if (script.silent or script.cheats) and not kind.scripted:
            raise LocalError(
                "--dropout and --cheat are for simulated parties: choose --runtime inprocess "
                "or processes"
            )
        if policy is not None and not kind.scripted:
            raise LocalError("--policy works with --runtime inprocess or processes")
        if network is not None and not kind.networks:
            raise LocalError("--network is emulated between processes: choose --runtime processes")
        layout = Layout(
            self.holdings,
            self.servers,
            hosts or (count if count <= kind.own_hosts else min(count, BLOCK_HOSTS)),
            seed,
            None if cap is None else parse_cap(str(cap)),
            store,
            self.misbehaviour,
            PeerConfig(peer or kind.peer).way,
            policy,
            cap_delta,
            None if network is None else network_of(network),
        )
        self.network = network or "none"
        self.runtime: Runtime = kind(layout)
        self._started: float | None = None
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def settled(self, question: Statistic | Study) -> Aggregator:
        """With what a question is put; a study as it was chosen: its questions may differ."""
        if isinstance(question, Study):
            return self._aggregator
        statistic = self._as_asked(question, self._aggregator)
        query = self._setting.usual_query(statistic)
        return self._aggregator if query is None else aggregator_named(query.aggregator)

    def predicted_links(self, question: Statistic | Study) -> dict[str, int]:
        """Bytes that links will carry, as far as the aggregator states them in a formula."""
        if isinstance(question, Study):
            return {}
        statistic = self._as_asked(question, self._aggregator)
        query = self._setting.usual_query(statistic)
        return {} if query is None else predicted_links(query)

    def start(self) -> None:
        """Brings the processes up; `run` does it by itself."""
        if self._started is None:
            begun = time.perf_counter()
            self.runtime.start()
            self._started = time.perf_counter() - begun

    def stop(self) -> None:
        if self._started is not None:
            self.runtime.stop()
            self._started = None

    def run(
        self,
        statistic: Statistic | Study | str,
        epsilon: float | str | Fraction = 1.0,
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
        interval: str = NOISE,
        where: str = "",
        by: Sequence[str] = (),
        groups: Mapping[str, str] | None = None,
    ) -> Result:
        """Asks one question, or those of a study, which share ε and δ. Raises `LocalError` for a
        bad one, `RunFailed` if it cannot finish.

        For Gaussian noise `epsilon` may be `rho R` instead, the ρ of zCDP.
        By its name it is asked of the columns that the data set names for it.
        With dropouts or cheaters and no `min_parties`, all others are needed. `fresh` draws new
        noise for a curve, and pays for it, where an earlier release would be given again.
        `noise_law` names the law of the noise (`tally list noise-laws`); `auto` takes the one of
        less error where so many `questions` like this are asked. `security` is how sure two
        servers are of what they compute together: semi-honest, covert or malicious. `interval` is
        what the interval covers: `noise`, or `population`; both are in `intervals`.
        `where` is a condition that records must meet to be in the answer, `by` are columns that
        divide them into groups, and `groups` names those, as `{"sex": "F,M"}`.
        """
        check_covers(interval)
        whole = Grant(PrivacyLoss.granted(str(epsilon), delta))
        options = AskingOptions(
            noise, unit, min_parties, deadline, fresh, report, noise_law, security, questions
        )
        named = self._named(statistic)
        if where or by:
            named = of_groups(named, where, by, groups or {}, self.data)
        statistic = self._understood(named, whole, options)
        if not isinstance(statistic, Study):
            result = self._ask(statistic, self._spec, whole, options)[0].showing(interval)
            more = words_of(named, statistic)
            return dataclasses.replace(result, notes=(*result.notes, *more))
        study, present = statistic, self.holdings

        def ask_one(question: StudyQuestion) -> Result:
            nonlocal present
            ask, how = question.ask, options.of(question)
            spec = ask.aggregator or self._spec
            result, present = self._ask(ask.statistic, spec, question.grant, how, question.salt)
            return result

        @cache
        def of_all() -> Estimate | None:
            return study.reference(self.holdings)

        def truth() -> Estimate | None:
            return of_all() if present is self.holdings else study.reference(present)

        def rehearse(question: StudyQuestion) -> float:
            ask, how = question.ask, options.of(question)
            return self._rehearse(ask.statistic, ask.aggregator or self._spec, question.grant, how)

        result = conduct(study, whole.loss, self._next_key(), ask_one, rehearse, report, truth)
        result = result.showing(interval)
        if not (clipped := study.clipped(self.holdings)):
            return result
        words = (
            f"{clipped} of {self.holdings.rows} records have a value outside the public bounds or "
            "names, and were clipped or counted as other"
        )
        return dataclasses.replace(result, notes=(*result.notes, words))

    def understood(
        self,
        question: Statistic | Study | str,
        epsilon: float | str | Fraction = 1.0,
        noise: str | None = None,
        unit: str = "record",
        delta: float = 0.0,
        noise_law: str = LAPLACE,
        security: str = "",
        questions: int = 1,
    ) -> Statistic | Study:
        """What is put for a question here: itself, or a study that answers it better, or the single
        question that answers a study. It asks nothing."""
        whole = Grant(PrivacyLoss.granted(str(epsilon), delta))
        options = AskingOptions(
            noise, unit, None, 30.0, False, silent, noise_law, security, questions
        )
        return self._understood(question, whole, options)

    def _understood(
        self, question: Statistic | Study | str, whole: Grant, options: AskingOptions
    ) -> Statistic | Study:
        setting = self._setting.public(options, whole.loss)
        found = settled(self._named(question), setting, self.data.bounds)
        if not isinstance(found, Study):
            return found
        found = found.with_names(published_groups(self.data))
        found = found.with_bounds(self.data.bounds).of_records(self.holdings.rows)
        return found.asked_of(self._aggregator.offers)

    def query(
        self,
        statistic: Statistic,
        epsilon: float | str | Fraction = 1.0,
        noise: str | None = None,
        unit: str = "record",
        delta: float = 0.0,
        noise_law: str = LAPLACE,
        security: str = "",
        questions: int = 1,
        spec: str | None = None,
    ) -> Query:
        """The query that a question would be, without asking it; `spec` is another aggregator than
        the federation's. Raises `LocalError` for a question that cannot be asked."""
        whole = Grant(PrivacyLoss.granted(str(epsilon), delta))
        options = AskingOptions(
            noise, unit, None, 30.0, False, silent, noise_law, security, questions
        )
        return self._question(statistic, spec or self._spec, whole, options, "").query

    def _ask(
        self,
        statistic: Statistic,
        spec: str,
        grant: Grant,
        options: AskingOptions,
        salt: str | None = None,
    ) -> tuple[Result, Holdings]:
        """The answer, and the records that are in it. A study's question has a `salt`, which makes
        its key."""
        key = "" if salt else self._next_key()
        question, query, why = self._question(statistic, spec, grant, options, key)
        question = keyed(question, salt) if salt else question
        if (pairs := query.plan.pairs) is not None:
            pairs.check_resolution(self.holdings)
        statistic = question.statistic
        # A study says itself what it means that records lie outside.
        clipped = 0 if salt else clipped_records(statistic, self.holdings)
        truth = statistic.reference(self.holdings)
        first = self._started is None
        self.start()
        before = cpu_times(self.runtime)
        opened = self.runtime.ask(question, options.report)
        seconds = {"start": self._started or 0.0} if first else {}
        present = self.holdings
        if len(opened.contributors) < len(self.holdings.ids):
            missing = set(self.holdings.ids.tolist()) - set(opened.contributors.tolist())
            present = self.holdings.without(frozenset(missing)) or self.holdings
            truth = statistic.reference(present)
        about = {"runtime": self.runtime.name, "network": self.network, "seed": self.seed}
        result = answered(question, opened, about, self.runtime.trust)
        assert result.proof is not None
        plan = result.proof.plan(result.proof.evidence.asked_query)
        notes = self._notes(question, plan, opened, clipped)
        if self.misbehaviour.cheats:
            notes += self._missed(result, opened.refused)
        result = dataclasses.replace(
            result,
            truth=beside(truth, result.estimate),
            seconds=seconds | opened.seconds,
            notes=(*result.notes, *filter(None, [why]), *notes),
            noiseless=noiseless(result.proof, opened, present),
            roles=used_since(before, self.runtime),
        )
        return result, present

    def _rehearse(
        self, statistic: Statistic, spec: str, grant: Grant, options: AskingOptions
    ) -> float:
        """The δ that a question would spend. Raises `LocalError` where it could not be asked, or
        where these parties would not answer it, before anything is started."""
        question, query, _ = self._question(statistic, spec, grant, options, "")
        if (pairs := query.plan.pairs) is not None:
            pairs.check_resolution(self.holdings)
        if query.plan.pairs is None:
            question.statistic.reference(self.holdings)  # refuses columns that it cannot be of
        policy, most = self.runtime.layout.policy, self._setting.max_records_per_party
        refusal = policy and policy.in_federation(self.servers).refusal(query, most)
        if refusal:
            raise LocalError(f"parties would not answer {asked_as(question.statistic)}: {refusal}")
        return aggregator_named(query.aggregator).mechanism(query).delta

    def _question(
        self, statistic: Statistic, spec: str, grant: Grant, options: AskingOptions, key: str
    ) -> _Settled:
        """Raises `LocalError` for a question that cannot be asked, before anything is started."""
        setting, script = dataclasses.replace(self._setting, spec=spec), self.misbehaviour
        if script != HONEST:
            fewest = script.fewest(setting.parties, options.min_parties)
            options = dataclasses.replace(options, min_parties=fewest)
        statistic = self._as_asked(statistic, setting.aggregator)
        question, why = setting.question(statistic, grant, options)
        question = dataclasses.replace(question, data=self.data.name, key=key)
        query = setting.query(question)
        self._check_cap(query)
        if script.cheats:
            _check_cheats(script, query)
        return _Settled(question, query, why)

    def _named(self, statistic: Statistic | Study | str) -> Statistic | Study:
        if isinstance(statistic, Statistic | Study):
            return statistic
        if not isinstance(statistic, str):
            raise LocalError(f"{statistic!r} is no statistic: give one, or its name")
        is_study = statistic in studies.study_names()
        kind: type[Statistic | Study] = (
            studies.study_named(statistic) if is_study else statistic_named(statistic)
        )
        known = {each.name for each in dataclasses.fields(kind)}
        roles = {role: column for role, column in self.data.roles.items() if role in known}
        if "value" in known and "value" not in roles and len(self.data.numbers) == 1:
            roles["value"] = next(iter(self.data.numbers))
        published = {"attributes": self.data.schema} if "attributes" in known else {}
        return kind.from_parameters({**roles, **published})

    def _check_cap(self, query: Query) -> None:
        """Raises `LedgerRefusal` where the cap could not hold it."""
        layout = self.runtime.layout
        spend = query.foreseen(aggregator_named(query.aggregator).mechanism(query).spend)
        filter = Filter.of(layout.cap, layout.cap_delta)
        filter.check(filter.counted(spend.loss, spend.concentrated), {})

    def _next_key(self) -> str:
        """A name for the next question; under a seed, the same in every run."""
        self._asked += 1
        return str(self._asked) if self.seed is not None else os.urandom(8).hex()

    def _as_asked(self, statistic: Statistic, aggregator: Aggregator) -> Statistic:
        """With bounds and categories that the data set publishes; a file's must come from the
        user."""
        if isinstance(statistic, Grouped):
            for column in statistic.groups.columns:
                look_up("column", column, self.data.columns)
            return statistic.asking(self._as_asked(statistic.asked, aggregator))
        statistic = statistic.with_names(published_groups(self.data))
        if known := self.data.categories.get(next(iter(statistic.columns), "")):
            statistic = with_categories(statistic, known)
        named = statistic.named_columns if isinstance(statistic, ReadsNames) else ()
        self.data.check([column for column in statistic.columns if column not in named])
        return with_published_bounds(statistic, self.data.bounds, aggregator.offers)

    def _notes(self, question: Question, plan: Plan, opened: Opened, clipped: int) -> list[str]:
        """What only a simulation can tell."""
        notes = []
        if self.seed is not None and question.epsilon is not None:
            notes.append("not private: a seeded run is reproducible, so its noise can be computed")
        notes += self.data.notes
        if self.misbehaviour.silent:
            notes.append(self.misbehaviour.silence(opened.contributors.tolist()))
        if clipped:
            ranges = set(known_bounds(question.statistic).values())
            outside = ", ".join(f"[{lower:g}, {upper:g}]" for lower, upper in sorted(ranges))
            notes.append(
                f"{clipped} of {self.holdings.rows} values lay outside {outside} and were clipped"
            )
        if plan.pairs is not None and (tied := plan.pairs.tied_by_rounding(self.holdings)):
            notes.append(
                f"{tied} distinct values were rounded to the same as others and count as equal: "
                "give --lower and --upper as narrow as they are"
            )
        return notes

    def _missed(self, result: Result, refused: int) -> list[str]:
        """Which parties cheated without being caught, and why."""
        aggregator = aggregator_named(str(result.federation["aggregator"]))
        name, checks = aggregator.name, aggregator.threat_model(self.servers).catches
        why = f"{name} found nothing wrong" if checks else f"{name} does not verify submissions"
        if refused:
            why = f"{name} left reports out and cannot name their senders"
        if self.misbehaviour.cheaters(Cheat.GARBLED_WEIGHT):
            why = "nobody checks what it garbled (see what there is to trust)"
        missed = self.misbehaviour.cheats.keys() - {party for party, _ in result.caught}
        return [
            f"{Role.PARTY.named(party)} cheated and was not caught: {why}"
            for party in sorted(missed)
        ]
