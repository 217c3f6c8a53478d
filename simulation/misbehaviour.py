"""Scripted misbehaviour of simulated parties: some fall silent, some cheat.

Every aggregator is put to the same script: what becomes of it is what its threat model says.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.block import PartyBlock
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.vouchers import PartySigner
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Machine
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.storage.party_answers import PartyAnswers

if TYPE_CHECKING:
    from tallyroom.parties.consent import Consent

_SPEC = re.compile(r"(?:party-)?(?P<party>[0-9]{1,9}):(?P<kind>.*)")


class Cheat(StrEnum):
    """`out-of-range`: follows the protocol with data far out of range; what that means depends
    on the aggregator (`simulation.lying_parties`). `malformed`: its submissions lack their last
    byte.
    `garbled-weight`: lies in the pairs that it garbles (`simulation.lying_garblers`)."""

    OUT_OF_RANGE = "out-of-range"
    MALFORMED = "malformed"
    GARBLED_WEIGHT = "garbled-weight"


class ServerCheat(StrEnum):
    """`no-noise`: garbles joint noise that is always 0 (`simulation.lying_servers`)."""

    NO_NOISE = "no-noise"


@dataclass(frozen=True)
class Misbehaviour:
    """Parties that are `silent` send the messages of `after` phases, and then no more.

    `cheats` says which parties cheat, and how; `servers` which servers.
    """

    silent: frozenset[int] = frozenset()
    after: int = 0
    cheats: Mapping[int, Cheat] = field(default_factory=dict)
    servers: Mapping[int, ServerCheat] = field(default_factory=dict)

    @property
    def absent(self) -> frozenset[int]:
        """Who never says anything."""
        return frozenset() if self.after else self.silent

    def cheaters(self, kind: Cheat) -> frozenset[int]:
        found = set()
        for party, cheat in self.cheats.items():
            if cheat is kind:
                found.add(party)
        return frozenset(found)

    def fewest(self, parties: int, min_parties: int | None) -> int:
        """The least number of parties that an answer needs: all that follow the protocol, if nobody
        says. Raises `LocalError` where more are needed than will ever speak."""
        if min_parties is None:
            return parties - len(self.silent) - len(self.cheats)
        answering = parties - len(self.absent)
        if self.absent and min_parties > answering:
            raise LocalError(
                f"--dropout leaves {answering} parties and --min-parties needs {min_parties}"
            )
        return min_parties

    def silence(self, contributors: Collection[int]) -> str:
        """The note about parties that fell silent, of which there are some."""
        if self.after == 0:
            gone = "1 party" if len(self.silent) == 1 else f"{len(self.silent)} parties"
            return f"{gone} dropped out: the truth is that of the others"
        messages = "a message" if self.after == 1 else f"{self.after} messages"
        return (
            f"{len(self.silent)} parties fell silent after {messages}, "
            f"{len(self.silent.intersection(contributors))} of them in the sum: "
            "the truth is that of the parties in it"
        )


HONEST = Misbehaviour()


class Script:
    """What a block's misbehaving parties do in one run, message by message."""

    def __init__(self, misbehaviour: Misbehaviour) -> None:
        self._silent = misbehaviour.silent
        self._after = misbehaviour.after
        self._malformed = misbehaviour.cheaters(Cheat.MALFORMED)
        self._spoken: dict[int, set[Phase]] = {party: set() for party in self._silent}

    def play(self, message: Message) -> Iterator[Message]:
        """What becomes of a message that parties were about to send.

        Copies for several servers are of one phase: a party that speaks in it reaches them all.
        """
        mute = [party for party in message.senders.tolist() if self._is_mute(party, message.phase)]
        cut = [party for party in message.senders.tolist() if party in self._malformed]
        if message.phase is not Phase.SUBMIT:
            cut = []
        yield from _of(message, ~np.isin(message.senders, mute + cut))
        for party in cut:
            for part in _of(message, message.senders == party):
                short = part.rows()[:, :-1]  # of several reports, half might be reports too
                yield replace(part, body=np.ascontiguousarray(short))

    def _is_mute(self, party: int, phase: Phase) -> bool:
        if party not in self._silent:
            return False
        spoken = self._spoken[party]
        if len(spoken) < self._after:
            spoken.add(phase)
        return phase not in spoken


def _of(message: Message, senders: NDArray[np.bool]) -> Iterable[Message]:
    """The part of a message that comes from some of its senders."""
    if senders.all():
        return (message,)
    if not senders.any():
        return ()
    return (message.select(np.flatnonzero(senders)),)


def misbehaviour(
    parties: int, dropout: float, drop_after: int, cheats: Iterable[str], seed: int | None
) -> Misbehaviour:
    """The script that the options of a simulation ask for. Raises `LocalError`."""
    of_parties, of_servers = parse_server_cheats(cheats)
    scripted = parse_cheats(of_parties, parties)
    silent = choose_silent(parties, dropout, seed, scripted)
    return Misbehaviour(silent, drop_after, scripted, of_servers)


def choose_silent(
    parties: int, dropout: float, seed: int | None, cheats: Collection[int] = ()
) -> frozenset[int]:
    """Which parties drop out: the nearest whole number to that fraction of them.

    Those that cheat do not. Raises `LocalError` unless somebody honest is left.
    """
    if not 0 <= dropout < 1:
        raise LocalError(f"--dropout {dropout:g}: a fraction of the parties, from 0 to below 1")
    count = round(dropout * parties)
    if count + len(cheats) >= parties:
        others = f" and {len(cheats)} that cheat" if cheats else ""
        raise LocalError(f"--dropout {dropout:g}{others} leaves none of {parties} parties")
    order = np.argsort(Randomness.for_role(seed, "dropouts").words(parties), kind="stable")
    honest = order[~np.isin(order, list(cheats))]
    return frozenset(honest[:count].tolist())


def parse_cheats(specs: Iterable[str], parties: int) -> dict[int, Cheat]:
    """Reads `PARTY:KIND`, one a cheater. Raises `LocalError` where that cannot be done."""
    cheats: dict[int, Cheat] = {}
    for spec in specs:
        found = _SPEC.fullmatch(spec)
        if found is None:
            kinds = " or ".join(Cheat)
            raise LocalError(f"--cheat {spec!r}: say who and how, as in 2:KIND with {kinds}")
        party = int(found["party"])
        if party >= parties:
            raise LocalError(f"--cheat {spec}: there are parties 0 to {parties - 1}")
        if party in cheats:
            raise LocalError(f"--cheat {spec}: {Role.PARTY.named(party)} cheats already")
        cheats[party] = look_up("way to cheat", found["kind"], {str(kind): kind for kind in Cheat})
    return cheats


def parse_server_cheats(specs: Iterable[str]) -> tuple[list[str], dict[int, ServerCheat]]:
    """The specs that are about parties, and what servers do. Raises `LocalError`."""
    specs = list(specs)
    own = [spec for spec in specs if spec.startswith("server-")]
    cheats: dict[int, ServerCheat] = {}
    kinds = {str(kind): kind for kind in ServerCheat}
    for spec in own:
        name, _, kind = spec.partition(":")
        if name != Role.SERVER.named(0):
            raise LocalError(f"--cheat {spec}: server-0 garbles, so that it alone can cheat so")
        if cheats:
            raise LocalError(f"--cheat {spec}: {name} cheats already")
        cheats[0] = look_up("way of a server to cheat", kind, kinds)
    return [spec for spec in specs if spec not in own], cheats


# --- parties that follow a script ---


class ScriptedBlock(PartyBlock):
    """Parties of which some misbehave. Deployed parties have no way to be scripted: nothing outside
    of `simulation` knows of this.

    Liars follow the protocol with data far out of range. In most aggregators they claim a thousand
    times the records that they hold, all at the upper bound.
    """

    def __init__(
        self,
        holdings: Holdings,
        randomness: Randomness,
        consent: "Consent | None" = None,
        answers: PartyAnswers | None = None,
        signer: PartySigner | None = None,
        misbehaviour: Misbehaviour = HONEST,
    ) -> None:
        super().__init__(holdings, randomness, consent, answers, signer)
        self._misbehaviour = misbehaviour
        self._scripts: dict[bytes, Script] = {}
        present = holdings.without(misbehaviour.absent) if misbehaviour.absent else holdings
        self._all_absent = present is None
        self._answering = holdings if present is None else present

    def handle(self, message: Message) -> Reply:
        """Those that are absent hear nothing."""
        if self._all_absent:
            return Reply(message.run)
        answering = np.isin(message.receivers, self._answering.ids)
        if self._misbehaviour.absent and not answering.all():
            if not answering.any():
                return Reply(message.run)
            message = message.select(np.flatnonzero(answering))
        return super().handle(message)

    def forget(self, run: bytes) -> None:
        super().forget(run)
        self._scripts.pop(run, None)

    def _answer(self, query: Query, holdings: Holdings) -> Machine:
        garblers = self._misbehaviour.cheaters(Cheat.GARBLED_WEIGHT)
        liars = self._misbehaviour.cheaters(Cheat.OUT_OF_RANGE)
        if not np.isin(holdings.ids, list(garblers | liars)).any():
            return super()._answer(query, holdings)
        # Loads circuits and every aggregator in which one can lie: only liars need them.
        from tallyroom.simulation.lying_parties import lying_garbler, lying_machine

        randomness = self._randomness.derive(query.stream)
        if np.isin(holdings.ids, list(garblers)).any():
            check(query)
            return lying_garbler(query, holdings, garblers, randomness)
        return lying_machine(query, holdings, liars, randomness, self.signer)

    def _send(self, run: bytes, messages: Sequence[Message]) -> list[Message]:
        script = self._scripts.setdefault(run, Script(self._misbehaviour))
        played = [each for message in messages for each in script.play(message)]
        return super()._send(run, played)
