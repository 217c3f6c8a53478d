"""What the coordinator remembers of releases: which data they are of, and not for ever."""

import asyncio
from collections.abc import Iterable
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallyroom.servers.releases
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import VERSION_BYTES, Holdings
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Curve, Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.on_demand import EcdfPoints, QuantileSearch
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.servers.coordinator import Coordinator
from tallyroom.servers.dispatch import Dispatch
from tallyroom.servers.message_service import Mailboxes, MessageService
from tallyroom.servers.releases import tree_of
from tallyroom.servers.run import LiveRuns, Run
from tallyroom.servers.runs import Runs
from tallyroom.simulation.runtimes import Layout
from tallyroom.simulation.runtimes.inprocess import InProcess
from tallyroom.storage.answers import Answers
from tallyroom.storage.ledger import Ledger
from tests.samples import a_message, a_query, holdings_of
from tests.servers.lying_coordinator import TOGETHER
from tests.servers.other_values import OTHER as OTHER_VALUES

CURVE = Question(
    Ecdf(value="value", lower=0.0, upper=1.0, thresholds=4),
    "additive",
    Fraction(1),
    Placement.EACH_SERVER,
    key="curve",
)
POINTS = replace(
    CURVE, statistic=EcdfPoints(lower=0.0, upper=1.0, at=(0.5,)), aggregator="fss", key="points"
)
EVERYBODY = np.arange(3, dtype=np.uint32)
SAME, OTHER = bytes(VERSION_BYTES), bytes([1] * VERSION_BYTES)


def joined() -> Coordinator:
    made = Coordinator(2, 3, Ledger(None), Randomness.from_seed(1, "coordinator"))
    made.enrol(EVERYBODY, np.array([2, 2, 2], dtype=np.uint32), SAME)
    return made


def released(made: Coordinator, question: Question) -> Query:
    query = made.query(question)
    made.releases.remember(query.run, query, made.data, EVERYBODY)
    return query


def known(made: Coordinator, question: Question) -> bytes | None:
    return made.releases.released(made.query(question), made.data)


@pytest.mark.parametrize(
    ("party", "records", "version"), [(1, 3, SAME), (1, 2, OTHER), (0, 1, SAME), (2, 2, OTHER)]
)
def test_other_data_is_another_release(party: int, records: int, version: bytes) -> None:
    made = joined()
    curve, points = released(made, CURVE), released(made, POINTS)
    again = replace(CURVE, key="again"), replace(POINTS, key="again")
    assert known(made, again[0]) == curve.run
    assert made.name_of(made.query(again[1])) == points.run
    one = np.array([party], dtype=np.uint32)
    made.enrol(one, np.array([records], dtype=np.uint32), version)
    assert known(made, again[0]) is None
    assert made.name_of(made.query(again[1])) not in (points.run, curve.run)
    made.enrol(one, np.array([2], dtype=np.uint32), SAME)  # what it held at first
    assert known(made, again[0]) == curve.run


OF_THE_ASKING = {"nonce", "deadline", "later", "asking"}
SHARED = replace(CURVE, noise=Placement.SHARED, honest=2, min_parties=2)


@pytest.mark.parametrize("name", [each.name for each in fields(Query)])
def test_a_tree_is_another_where_any_field_of_its_query_is(name: str) -> None:
    """But for those of the asking alone. A field that is new is part of it, unless it says not."""
    query = a_query(
        statistic=CURVE.statistic,
        epsilon=Fraction(1),
        servers=3,
        records=8,
        min_parties=2,
        noise=Placement.SHARED,
        honest=2,
        max_records_per_party=4,
    )
    if name in ("rho", "security"):  # which other placements and laws have
        query = replace(query, **{**TOGETHER[name], "statistic": CURVE.statistic, "delta": 1e-6})
    other: dict[str, Any] = {name: OTHER_VALUES[name](query)}
    if name == "rho":
        other["delta"] = 0.0
    if name == "noise":
        other["honest"] = 0
    changed = replace(query, **other)
    assert getattr(changed, name) != getattr(query, name)
    assert (tree_of(changed) == tree_of(query)) == (name in OF_THE_ASKING)
    assert (changed.stream == query.stream) == (name in OF_THE_ASKING - {"nonce"})
    if name in ("rho", "security"):
        return
    if replace(SHARED, key="").difference(changed) is not None:  # an analyst would not take it
        assert tree_of(changed) != tree_of(query)


def test_a_release_for_other_servers_to_be_honest_is_not_given_again() -> None:
    """Its noise is of another size: who asked would say that the coordinator lies."""
    with InProcess(Layout(holdings_of([0.1, 0.4, 0.6, 0.9], 3), 3, 1)) as runtime:
        for honest in (2, 3, 2):
            question = replace(SHARED, honest=honest, key=f"{honest} of 3")
            runtime.ask(question, lambda _: None).prove(question)
        assert len(runtime._ledgers[0].rows()) == 2


def test_a_fresh_release_takes_the_place_of_the_old_one() -> None:
    made = joined()
    old, held = released(made, CURVE), released(made, POINTS)
    fresh = made.query(replace(CURVE, key="fresh", fresh=True))
    assert made.releases.released(fresh, made.data) is None
    assert fresh.run != old.run
    asked = made.query(replace(POINTS, key="fresh points", fresh=True))
    assert asked.run != held.run
    assert made.releases.outdated == [held.run]
    assert not made.releases.holds(held.run)


def test_keys_of_old_trees_are_not_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallyroom.servers.releases, "MOST_HELD", 3)
    monkeypatch.setattr(tallyroom.servers.releases, "MOST_RELEASED", 3)
    made = joined()
    runs = []
    for number in range(1, 6):
        epsilon = Fraction(1, number)
        released(made, replace(CURVE, key=f"curve {number}", epsilon=epsilon))
        question = replace(POINTS, key=f"points {number}", epsilon=epsilon)
        runs.append(released(made, question).run)
    assert made.releases.outdated == runs[:2]
    assert [made.releases.holds(run) for run in runs] == [False, False, True, True, True]
    there = [
        known(made, replace(CURVE, epsilon=Fraction(1, number))) is not None
        for number in range(1, 6)
    ]
    assert there == [False, False, True, True, True]


def test_a_tree_is_not_forgotten_while_it_is_asked(tmp_path: Path) -> None:
    """A fresh question outdates it; whoever asks the old one at that moment gets an answer."""

    async def scenario() -> None:
        made, live = joined(), LiveRuns()
        runs = runs_of(made, live, tmp_path)
        held, again = released(made, POINTS), made.query(replace(POINTS, key="again"))
        asking = Run(b"again", "", again, made.data, held.run)
        live.add(asking)
        made.ask(again)
        made.query(replace(POINTS, key="fresh", fresh=True))
        await runs._forget(b"another run that is over")
        assert made.is_open(held.run)
        assert made.releases.outdated == [held.run]
        live.remove(asking)
        await runs._forget(held.run)
        assert not made.is_open(held.run)
        assert made.releases.outdated == []

    asyncio.run(scenario())


def test_data_that_changes_before_a_stored_tree_is_asked_leaves_nobody_waiting(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        made, live = joined(), LiveRuns()
        runs = runs_of(made, live, tmp_path)
        held, again = released(made, POINTS), made.query(replace(POINTS, key="again"))
        asking = Run(b"again", "", again, made.data, made.name_of(again))
        assert asking.run == held.run
        live.add(asking)
        made.enrol(EVERYBODY[:1], np.array([2], dtype=np.uint32), OTHER)
        with pytest.raises(RunFailed, match="data changed in the meantime"):
            await runs._begin(asking)
        assert live.all() == []

    asyncio.run(scenario())


def test_a_server_repeats_what_it_said_last_however_often_a_tree_was_asked() -> None:
    with InProcess(Layout(holdings_of([0.1, 0.4, 0.6, 0.9], 3), 2, 1)) as runtime:
        for at in (0.25, 0.5, 0.75):
            statistic = EcdfPoints(lower=0.0, upper=1.0, at=(at,))
            runtime.ask(replace(POINTS, statistic=statistic, key=f"{at}"), lambda _: None)
        server = runtime._servers[0]
        (run,) = server.kept_runs()
        question = server._queries[run]
        said = server.handle(
            a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=question, run=run)
        )
    assert [message.phase for message in said.messages] == [Phase.ROSTER, Phase.SHARE]


def runs_of(made: Coordinator, live: LiveRuns, folder: Path) -> Runs:
    """Of a federation whose servers are not there."""
    mailboxes = Mailboxes()

    async def carry(_: Reply) -> None:
        pass

    post = MessageService(made, mailboxes, carry, None)
    dispatch = Dispatch(made, post, mailboxes, [], live, durable=False)
    return Runs(made, post, dispatch, live, [], Answers(folder, False), lambda _: [], False)


@pytest.mark.parametrize("version", [b"x", bytes(VERSION_BYTES - 1), bytes(VERSION_BYTES + 1)])
def test_a_version_of_another_size_is_refused(version: bytes) -> None:
    made = joined()
    before = made.data
    with pytest.raises(LocalError, match="a version of data has 16 bytes"):
        made.enrol(EVERYBODY[:1], np.array([9], dtype=np.uint32), version)
    assert made.data == before


def test_a_version_changes_with_every_part_of_the_data_and_with_the_secret() -> None:
    """And tells nothing without the secret: it is a keyed digest."""
    base = holdings_of([0.1, 0.2, 0.3, 0.4], 2)
    secret = Randomness.from_seed(1, "party")
    others = [
        holdings_of([0.1, 0.2, 0.3, 0.4000001], 2),
        holdings_of([0.1, 0.2, 0.3], 2),
        holdings_of([0.1, 0.2, 0.3, 0.4], 1),
        holdings_of([0.1, 0.3, 0.2, 0.4], 2),
        Holdings(base.ids, base.starts, {"other": base.column("value")}),
        Holdings(base.ids + np.uint32(1), base.starts, base.columns),
        Holdings(base.ids, np.array([0, 1]), base.columns),
    ]
    versions = [holdings.version(secret) for holdings in (base, *others)]
    versions.append(base.version(Randomness.from_seed(2, "party")))
    assert len(set(versions)) == len(versions)
    assert {len(version) for version in versions} == {VERSION_BYTES}
    assert base.version(secret) == versions[0]


class Repeating(InProcess):
    """Servers say all their shares again before each new one, as one does that was restarted."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._shares: list[Message] = []

    def on_way(self, message: Message) -> Iterable[Message]:
        if message.phase is not Phase.SHARE:
            return (message,)
        sender = message.sender
        self._shares.append(message)
        return [share for share in self._shares if share.sender == sender]


@pytest.mark.parametrize("kind", [EcdfPoints, QuantileSearch])
def test_shares_of_earlier_points_are_not_taken_for_those_of_later_ones(
    kind: type[EcdfPoints | QuantileSearch],
) -> None:
    runtime = Repeating(Layout(holdings_of([0.1, 0.4, 0.6, 0.9], 2), 2, 1, seed=1))
    runtime.start()
    points = (0.2, 0.5, 0.8)
    asked: list[Statistic]
    if kind is EcdfPoints:
        asked = [EcdfPoints(lower=0.0, upper=1.0, at=(at,)) for at in points]
        expected = [0.25, 0.5, 0.75]
    else:
        asked = [QuantileSearch(lower=0.0, upper=1.0, quantile=(at,)) for at in points]
        expected = [0.1, 0.4, 0.9]
    try:
        for statistic, right in zip(asked, expected, strict=True):
            question = replace(POINTS, statistic=statistic, epsilon=None, key=f"{right}")
            opened = runtime.ask(question, lambda _: None)
            _, proof = opened.prove(question)
            found = planned(proof.statistic).decode(opened.total, opened.records, exact=True)
            assert (found.y if isinstance(found, Curve) else [found]) == [right]
        for server in runtime._servers:  # what it would say again does not grow
            (said,) = server._said.values()
            assert [message.phase for message in said] == [Phase.ROSTER, Phase.SHARE]
    finally:
        runtime.stop()
