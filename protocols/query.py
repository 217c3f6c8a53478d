"""What is asked: the public description that every role of a run builds its machine from."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tallyroom.protocols import joint
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.joint.levels import MALICIOUS, Level, Security, parse_security
from tallyroom.protocols.plans.contract import Curated, NoisyChoice, Plan, Points
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.loss import (
    MAX_TEXT,
    NO_LOSS,
    PrivacyLoss,
    as_written,
    parse_epsilon,
    parse_rho,
)
from tallyroom.protocols.privacy.mechanisms import (
    LAPLACE,
    Placement,
    enough_shares,
    honest_servers,
    laplace_scale,
)
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity, noise_law_named
from tallyroom.protocols.registry import offers_of
from tallyroom.protocols.statistics import Statistic, statistic_named
from tallyroom.protocols.statistics.contract import asked_as
from tallyroom.protocols.wire.machine import Spend
from tallyroom.protocols.wire.messages import (
    DIGEST_BYTES,
    MAX_MEMBERS,
    MAX_ROW,
    NONCE_BYTES,
    RUN_BYTES,
)

if TYPE_CHECKING:
    from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace

MAX_PARTIES = MAX_MEMBERS
MAX_SERVERS = 64
MAX_LENGTH = MAX_ROW // 8
"""A share of the whole vector is one row of a message."""
MAX_DEADLINE = 86400
MAX_SPEC = 200
MAX_RECORDS = 1 << 32
"""The sum of that many of the largest values, and the noise, fit the ring."""
MAX_JOINT_NOISES = 1 << 16
"""That many noises are some 1.5 GB between the two servers that draw them together."""
MAX_JOINT_COINS = 1 << 27
"""The most coins, or ANDs, of all joint noises together, however small δ is: some 6 GB."""
ASKING_BYTES = 16
_ASKING = re.compile(f"[0-9a-f]{{{2 * ASKING_BYTES}}}")


_OF_THE_ASKING: Mapping[str, bool] = {"of the release": False}
"""Of a field that changes nothing in what is released: two questions that differ in no other ask
for one release. Every other field is part of what a release is, without a word."""


SAID_IF_CHOSEN: Mapping[str, Any] = {"honest": 0, "law": LAPLACE, "rho": "", "security": ""}
"""Fields of a query, and of a question, that are left out of it where they are as here."""


def chosen(asked: object) -> dict[str, Any]:
    """Those of `SAID_IF_CHOSEN` that somebody chose."""
    found = {}
    for name, unsaid in SAID_IF_CHOSEN.items():
        if (value := getattr(asked, name)) != unsaid:
            found[name] = value
    return found


def of_the_release(each: Field[Any]) -> bool:
    """Whether what is released depends on this field of a query."""
    return bool(each.metadata.get("of the release", True))


def run_name(nonce: bytes, encoded: bytes) -> bytes:
    """The name of the run that puts this query: its nonce, and a digest of nonce and query.

    Whoever names a run has thereby said what is asked. A coordinator that would have two queries
    under one name looks for a collision among digests of 160 bits: 2^80 attempts.
    """
    digest = hashlib.blake2s(nonce + encoded, digest_size=DIGEST_BYTES, person=b"tallyrun")
    return nonce + digest.digest()


def check_later(epsilon: Fraction | None, later: PrivacyLoss) -> None:
    """Raises `LocalError` unless a study can spend `later` after a question of such an ε."""
    if not later.bounded or later.delta >= 1:
        raise LocalError("what a study spends later is bounded, with a delta below 1")
    if epsilon is None and not later.nothing:
        raise LocalError("a study without noise has nothing to spend later")
    later.encode()  # which too many digits prevent


def encode_later(later: PrivacyLoss) -> dict[str, object]:
    """The fields of an encoding that tell what a study spends later. Without any, nothing."""
    return {} if later.nothing else later.encode("later_")


def decode_later(fields: dict[str, Any]) -> PrivacyLoss:
    """Takes those fields out of an encoding. Raises `LocalError`."""
    told = fields.keys() & {"later_epsilon", "later_rho", "later_delta"}
    return PrivacyLoss.decode(fields, "later_") if told else NO_LOSS


MOST_NAMED = 4
"""The sentence names no more columns than this."""


@dataclass(frozen=True)
class Adjacency:
    """States in one sentence which data sets are adjacent, that is, what the ε of an answer
    protects. Answers, result.json, help, `tally verify` and the refusals of policies all take the
    sentence from here.

    Adjacent data sets have equally many records of each party, and agree in the `public` columns
    of all records. They differ in the `protected` columns of one record or, with `whole_party`, of
    all records of one party. `exactly` names what is released about the public columns without
    noise."""

    protected: tuple[str, ...]
    public: tuple[str, ...] = ()
    exactly: str = ""
    whole_party: bool = False

    @classmethod
    def of(cls, plan: Plan, columns: tuple[str, ...], whole_party: bool = False) -> "Adjacency":
        public = tuple(dict.fromkeys(plan.public))
        protected = (each for each in columns if each not in public)
        return cls(tuple(dict.fromkeys(protected)), public, plan.public_facts, whole_party)

    def __str__(self) -> str:
        unit = "all records of one party" if self.whole_party else "one record"
        other = "as many others" if self.whole_party else "any other"
        if not self.public:
            return f"{unit}, replaced by {other}"
        verb = "is" if len(self.public) == 1 else "are"
        known = f"{_listed(self.public)} {verb} taken as public"
        if self.exactly:
            known += f", and {self.exactly} is released without noise"
        if not self.protected:
            return f"nothing: {known}"
        return f"{_listed(self.protected)} of {unit}, replaced by any other values; {known}"


def _listed(columns: tuple[str, ...]) -> str:
    more = len(columns) - MOST_NAMED
    if more > 0:
        return f"{', '.join(columns[:MOST_NAMED])} and {more} more columns"
    *others, last = columns
    return f"{', '.join(others)} and {last}" if others else last


@dataclass(frozen=True)
class Query:
    """`records` is the number of records that all parties hold together; it is public.

    `records_per_unit` is how many records one unit of privacy may hold: 1 when the unit is a
    record, `max_records_per_party` when it is all that one party holds. The latter is how many the
    largest party has, which is public. `min_parties` is the least number of parties for which an
    answer may be released. `delta` is the δ that the analyst grants, for mechanisms that need one.
    `nonce` tells runs of the same query apart. `asking` is a digest of the analyst's own name for
    its question: the answer to an earlier one, however alike, has another.

    `honest` is how many servers' shares make up noise that is `shared`; 0 where it is a majority,
    and with other noise. `law` names the law of the noise (`NoiseLaw`). `security` is how sure the
    two servers are of what they compute together (`joint.levels`), empty for what is usual.

    `rho` is the exact text of what is granted where that is said in ρ, else empty. Then `epsilon`
    is what plans go by (`PrivacyLoss.as_epsilon`), and nothing is granted in ε.

    `later` is what the questions of the same study may spend after this one. A keeper of a ledger
    takes no part in a study that its cap cannot hold to the end (`foreseen`). They are charged when
    they are asked, like any question.
    """

    nonce: bytes = field(metadata=_OF_THE_ASKING)
    statistic: Statistic
    aggregator: str
    parties: int
    servers: int
    records: int
    epsilon: Fraction | None
    noise: Placement
    data: str
    min_parties: int
    records_per_unit: int = 1
    max_records_per_party: int = 1
    deadline: float = field(default=30.0, metadata=_OF_THE_ASKING)
    delta: float = 0.0
    later: PrivacyLoss = field(default=NO_LOSS, metadata=_OF_THE_ASKING)
    asking: str = field(default="", metadata=_OF_THE_ASKING)
    honest: int = 0
    law: str = LAPLACE
    rho: str = ""
    security: str = ""

    def __post_init__(self) -> None:
        if len(self.nonce) != NONCE_BYTES:
            raise LocalError(f"the nonce of a run has {NONCE_BYTES} bytes, not {len(self.nonce)}")
        if not 1 <= self.parties <= MAX_PARTIES:
            raise LocalError(f"{self.parties} parties: there must be 1 to {MAX_PARTIES}")
        if not 1 <= self.servers <= MAX_SERVERS:
            raise LocalError(f"{self.servers} servers: there must be 1 to {MAX_SERVERS}")
        if not 1 <= self.min_parties <= self.parties:
            raise LocalError(
                f"a minimum of {self.min_parties} parties cannot be met by {self.parties}"
            )
        possible = self.parties <= self.records <= MAX_RECORDS
        most = (self.records_per_unit, self.max_records_per_party)
        held = min(most) >= 1 and max(most) <= self.records
        if not possible or not held:
            raise LocalError(
                f"{self.records} records in groups of {self.records_per_unit} are impossible"
            )
        if self.noise is Placement.PARTIES and self.min_parties < enough_shares(self.parties):
            raise LocalError(
                f"noise shared by {self.parties} parties needs at least "
                f"{enough_shares(self.parties)} of them to contribute, not {self.min_parties}"
            )
        if len(self.aggregator) > MAX_SPEC:
            raise LocalError(f"an aggregator is named in at most {MAX_SPEC} characters")
        if self.epsilon is not None and len(str(self.epsilon)) > MAX_TEXT:
            raise LocalError("epsilon has too many digits: write it shorter")
        if self.asking and not _ASKING.fullmatch(self.asking):
            raise LocalError(f"an asking is named by {2 * ASKING_BYTES} hexadecimal digits")
        if not 0 <= self.delta < 1:
            raise LocalError(f"delta is a probability from 0 to below 1, not {self.delta}")
        self.check_delta(self.delta)
        check_later(self.epsilon, self.later)
        if not 0 < self.deadline <= MAX_DEADLINE:
            raise LocalError(f"a deadline of {self.deadline} seconds is not possible")
        plan, name = self.plan, asked_as(self.statistic)
        if max(plan.length, plan.released, plan.noises // 4) > MAX_LENGTH:
            raise LocalError(f"vectors of {plan.length} are too long to aggregate")
        if self.choice is not None and self.noise is not Placement.JOINT:
            raise LocalError(
                f"{name} opens nothing but what is chosen, which two servers do "
                "together: --aggregator additive or fss, --noise joint"
            )
        if self.noise is Placement.SHARED and self.servers < 3:
            raise LocalError(
                f"shared noise takes three servers or more, not {self.servers}: two draw it joint"
            )
        if self.honest and self.noise is not Placement.SHARED:
            raise LocalError(f"how many servers are honest is of shared noise, not of {self.noise}")
        if not 0 <= self.honest <= self.servers:
            raise LocalError(
                f"{self.honest} honest servers: there are {self.servers}, and one must be honest"
            )
        if self.noise is Placement.JOINT and self.servers != 2:
            raise LocalError(f"joint noise is drawn by two servers, not by {self.servers}")
        if self.noise is Placement.JOINT and plan.noises > MAX_JOINT_NOISES:
            raise LocalError(
                f"{plan.noises} noises are too many to draw together: {MAX_JOINT_NOISES} at most"
            )
        plan.check_asked(self.parties, self.noise)
        self._check_law()
        self._check_security()
        curated = self.curated is not None
        if curated and (self.servers != 1 or self.noise is not Placement.CURATOR):
            raise LocalError(
                f"{name} by this method: its noise depends on the exact counts, "
                "which a trusted curator alone may see: --aggregator curator, without --noise"
            )
        if curated and self.records_per_unit != 1:
            raise LocalError(f"{name} protects one record only: --unit record")

    def _check_security(self) -> None:
        """Raises `LocalError` where the servers garble nothing together, or not so."""
        if not self.security:
            return
        parse_security(self.security)
        if self.noise is not Placement.JOINT and not self.plan.computed_by_servers:
            raise LocalError(
                f"two servers garble nothing for {asked_as(self.statistic)} with {self.noise} "
                "noise: leave --security out, or take --noise joint"
            )

    def _check_law(self) -> None:
        """Raises `LocalError` where noise of the law cannot be drawn."""
        law = noise_law_named(self.law)
        if self.rho:
            self._check_rho()
        if self.law == LAPLACE:
            return
        if not self.plan.any_law:
            raise LocalError(
                f"{asked_as(self.statistic)} like this takes no noise law but {LAPLACE}, not "
                f"{self.law}: leave --noise-law out"
            )
        if self.noise is Placement.PER_PAIR:
            raise LocalError(
                f"{self.noise} noise is drawn inside a circuit, which has no law but {LAPLACE}, "
                f"not {self.law}: leave --noise-law out, or take --noise total"
            )
        if self.noise is Placement.JOINT and not law.in_circuits:
            raise LocalError(
                f"joint noise is drawn inside a circuit, which has no law {self.law}: leave "
                "--noise-law out, or take --noise each-server"
            )
        if self.noise in (Placement.PARTIES, Placement.SHARED) and not law.has_shares:
            raise LocalError(
                f"noise of the law {self.law} is not drawn in shares, as {self.noise} noise is: "
                "take --noise each-server or curator"
            )

    def _check_rho(self) -> None:
        if self.law == LAPLACE:
            raise LocalError(
                f"{LAPLACE} noise is asked for in epsilon, not in rho: take --epsilon, or "
                "--noise-law gaussian"
            )
        if self.delta:
            raise LocalError("rho is granted without delta: leave one of them out")
        if str(parse_rho(self.rho)) != self.rho or self.granted.as_epsilon != self.epsilon:
            raise LocalError(f"rho {self.rho} and epsilon {self.epsilon} do not go together")

    @property
    def granted(self) -> PrivacyLoss:
        """The most that a release may cost."""
        if self.rho:
            return PrivacyLoss.concentrated(Fraction(self.rho))
        return PrivacyLoss.of(self.epsilon, self.delta)

    @property
    def drawn_in(self) -> int:
        """Of how many shares a noise is the sum; 1 where one draws it whole."""
        if self.noise is Placement.PARTIES:
            return enough_shares(self.parties)
        return honest_servers(self.servers, self.honest) if self.noise is Placement.SHARED else 1

    @cached_property
    def run(self) -> bytes:
        """The run's name, which every message of it carries (`run_name`)."""
        return run_name(self.nonce, self.encode())

    @property
    def facts(self) -> Facts:
        """The public facts that a plan is made of."""
        return Facts(
            records=self.records,
            parties=self.parties,
            servers=self.servers,
            max_records_per_party=self.max_records_per_party,
            records_per_unit=self.records_per_unit,
            epsilon=self.epsilon,
            delta=self.delta,
            noise=self.noise,
            honest=self.honest,
            seed=hashlib.blake2s(self.nonce, person=b"matching").digest(),
            offers=offers_of(self.aggregator),
            law=self.law,
        )

    @cached_property
    def plan(self) -> Plan:
        """What is computed, by every role alike: a function of the statistic and the facts."""
        return self.statistic.plan(self.facts)

    @property
    def curated(self) -> Curated | None:
        """The plan, where a trusted curator draws noise of its own."""
        return self.plan if isinstance(self.plan, Curated) else None

    @property
    def points(self) -> Points | None:
        """The plan, where servers keep keys and answer point after point."""
        return self.plan if isinstance(self.plan, Points) else None

    @property
    def adjacency(self) -> Adjacency:
        """What ε is for. Where no party has more than one record, the two units are one."""
        return Adjacency.of(self.plan, self.statistic.columns, self.records_per_unit > 1)

    def check_delta(self, delta: float) -> None:
        """Raises `LocalError` for a δ that lets a mechanism publish outright one of the units of
        privacy, which are records, or parties where the unit is a party."""
        units = self.records if self.records_per_unit == 1 else self.parties
        if delta * units >= 1:
            raise LocalError(
                f"delta {delta:g} is not below one in {units}, the number of records or "
                "parties that are protected: it would allow publishing one of them"
            )

    @property
    def sensitivity(self) -> Sensitivity:
        """How far replacing one unit of privacy moves what is released."""
        moves = 1 if self.choice is None else self.choice.moves
        return self.plan.sensitivity.of_group(self.records_per_unit * moves)

    @cached_property
    def noise_law(self) -> NoiseLaw | None:
        """The noise that makes the answer private; None when there is to be none. Raises
        `LocalError` where the law has none that costs no more than is granted."""
        if self.epsilon is None or self.sensitivity.l1 == 0:
            return None
        granted = self._granted_to_law
        law = noise_law_named(self.law)
        found = law.calibrated(granted, self.sensitivity, self.drawn_in)
        if not found.loss(self.sensitivity) <= granted:
            raise LocalError(f"noise of the law {self.law} costs more than {granted}")
        return found

    @property
    def _delta_of_circuit(self) -> float:
        """The most δ that joint noise may cost by being near to its law, and not quite that. Where
        the law needs a δ for itself, a small part of what is granted."""
        from_law = self.law != LAPLACE and self.delta
        return (
            min(self.delta / 1024, joint.DEFAULT_DELTA)
            if from_law
            else self.delta or joint.DEFAULT_DELTA
        )

    @property
    def _granted_to_law(self) -> PrivacyLoss:
        """The most that noise may cost that is exactly of its law."""
        granted = self.granted
        if self.law == LAPLACE or self.noise is not Placement.JOINT or not self.delta:
            return granted
        return replace(granted, delta=granted.delta - as_written(self._delta_of_circuit))

    @property
    def loss(self) -> PrivacyLoss:
        """What a release costs: of Laplace noise all that was granted of ε, and the δ of samplers
        that are not exact; of another law, what it says, but where it speaks of ρ and (ε, δ) were
        granted, these: it is calibrated to them."""
        if self.epsilon is None or self.noise_law is None:
            return PrivacyLoss.of(self.epsilon)
        if self.law != LAPLACE:
            stated = self.noise_law.loss(self.sensitivity)
            if stated.rho is None:
                return stated
            return self.granted if self.delta else self.granted + self._of_circuit
        if self.joint_noise is not None:
            delta = float(self._of_circuit.delta)
        elif self.curated is not None:
            delta = self.curated.mechanism.numeric_delta(self.delta)
        elif self.plan.pairs is not None:
            delta = self.plan.pairs.numeric_delta(self.epsilon, self.delta, self.records_per_unit)
        else:
            delta = 0.0
        return PrivacyLoss.of(self.epsilon, delta)

    @property
    def concentrated(self) -> PrivacyLoss:
        """What a release costs in ρ, as its law says, with the δ of samplers."""
        if self.noise_law is None or not self.plan.any_law:
            return self.loss.as_concentrated()
        stated = self.noise_law.concentrated(self.sensitivity).rounded_up()
        if self.law == LAPLACE:
            return stated + PrivacyLoss(Fraction(0), self.loss.delta)
        return stated + self._of_circuit

    @property
    def _of_circuit(self) -> PrivacyLoss:
        """The loss charged because joint noise follows its law only approximately."""
        if self.joint_noise is None or self.epsilon is None:
            return NO_LOSS
        return PrivacyLoss.of(0, self.joint_noise.delta(self.epsilon, self.plan.noises))

    @property
    def released(self) -> int:
        """How many values each server releases."""
        gathered = self.curated is not None and self.curated.gathered
        sums = self.noise_law is None and self.choice is None and not gathered
        return self.plan.length if sums else self.plan.released

    @property
    def submitted(self) -> int:
        """How many values a party submits of its vector: where parties add the noise, those that
        are released."""
        return self.released if self.noise is Placement.PARTIES else self.plan.length

    @property
    def circuit_noise(self) -> "CircuitLaplace | None":
        """The noise that parties draw inside a circuit; None where they draw none."""
        if (pairs := self.plan.pairs) is None:
            return None
        return pairs.circuit_noise(self.epsilon, self.delta, self.records_per_unit)

    @cached_property
    def choice(self) -> "joint.Choice | joint.FirstAbove | None":
        """What servers choose, where they release nothing else.

        Scores have room for all that parties can hold. Each party checks that of itself, and no
        other number of records: in a circuit for fewer than there are, scores would wrap around,
        and one record more could turn the largest into the least, past any noise.
        """
        if not isinstance(self.plan, NoisyChoice):
            return None
        return replace(self.plan.rule, most=self.parties * self.max_records_per_party)

    @cached_property
    def joint_noise(self) -> "joint.JointNoise | None":
        """The noise that two servers draw together; None where they draw none."""
        if self.noise is not Placement.JOINT or self.epsilon is None or self.noise_law is None:
            return None
        noises, delta = self.plan.noises, self._delta_of_circuit
        noise: joint.JointNoise
        if self.choice is None:
            noise = joint.in_circuit(self.noise_law, self.epsilon, delta, noises)
        else:
            scale = laplace_scale(self.noise_law)
            noise = joint.JointGeometric.spending(scale, self.epsilon, delta, noises)
        if noise.size * noises > MAX_JOINT_COINS:
            raise LocalError(
                f"{noises} noises of {noise.coins} coins each are too many to draw together: "
                "grant more delta, or take --noise each-server"
            )
        return noise

    @property
    def secured_noise(self) -> Security:
        """How joint noise is drawn."""
        return parse_security(self.security) if self.security else MALICIOUS

    @property
    def checks_tasks(self) -> bool:
        """Whether what servers compute on data is computed both ways. Choices are unless it is
        said otherwise; pairs, whose outputs are bounded, if it is said."""
        if not self.security:
            return self.choice is not None
        return parse_security(self.security).level is not Level.SEMI_HONEST

    @property
    def weakest_level(self) -> Level | None:
        """How sure servers are at least of all that they compute together; None where they compute
        nothing. Pairs that are garbled one way, with outputs that are bounded, count as
        semi-honest."""
        if self.noise is not Placement.JOINT and not self.plan.computed_by_servers:
            return None
        on_data = self.choice is not None or self.plan.computed_by_servers
        if on_data and not self.checks_tasks:
            return Level.SEMI_HONEST
        return self.secured_noise.level

    @property
    def spend(self) -> Spend:
        """What a release of the query's own noise costs."""
        return self.costing(self.loss, self.concentrated)

    def costing(self, loss: PrivacyLoss, in_rho: PrivacyLoss) -> Spend:
        """A release at this cost. Its receipt is the run's: releasing it again costs nothing."""
        known = None if in_rho == loss.as_concentrated() else in_rho
        return Spend(self.data, self.run.hex(), loss, known)

    def foreseen(self, spend: Spend) -> Spend:
        """What a ledger must have room for before this question is answered: its own release, and
        the rest of its study. Nothing is charged by it."""
        if self.later.nothing:
            return spend
        later = self.later.as_concentrated()
        return replace(spend, loss=spend.loss + self.later, in_rho=spend.concentrated + later)

    @property
    def release(self) -> tuple[object, ...]:
        """All that decides what is released, beside the statistic: every field that is not of the
        asking alone, but for those of `SAID_IF_CHOSEN` that nobody chose."""
        left_out = {"statistic", *(SAID_IF_CHOSEN.keys() - chosen(self).keys())}
        told = []
        for each in fields(self):
            if of_the_release(each) and each.name not in left_out:
                told.append(getattr(self, each.name))
        return tuple(told)

    @property
    def stream(self) -> str:
        """The label of the randomness that a role draws for this query.

        It names what is released as well as the run: under a run's name alone, another query put
        to a restarted party would be masked by the same bytes, and their difference would show.
        How the release is post-processed is not in it: that changes no vector and no noise.
        """
        released = repr((self.plan.identity, *self.release)).encode()
        return f"run {self.nonce.hex()} of {hashlib.blake2s(released, digest_size=16).hexdigest()}"

    def encode(self) -> bytes:
        """Canonical JSON: one query has one encoding, whatever the runtime, and the nonce is not
        in it."""
        return json.dumps(
            {
                "statistic": self.statistic.name,
                "parameters": self.statistic.parameters(),
                "aggregator": self.aggregator,
                "parties": self.parties,
                "servers": self.servers,
                "records": self.records,
                "epsilon": "inf" if self.epsilon is None else str(self.epsilon),
                "noise": str(self.noise),
                "data": self.data,
                "min_parties": self.min_parties,
                "records_per_unit": self.records_per_unit,
                "max_records_per_party": self.max_records_per_party,
                "deadline": float(self.deadline),
                "delta": float(self.delta),
                **encode_later(self.later),
                "asking": self.asking,
                **chosen(self),
            },
            sort_keys=True,
            separators=(",", ":"),
        ).encode()


MALFORMED = (
    ArithmeticError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
)
"""What parsing fields that somebody else wrote may raise, a `LocalError` among them."""


def decode_query(run: bytes, data: bytes, peer: str) -> Query:
    """Parses what `peer` sent. Raises `PeerError` on anything but the canonical encoding of the
    query that the run is named for."""
    nonce = run[:NONCE_BYTES]
    if len(run) != RUN_BYTES or run_name(nonce, data) != run:
        raise PeerError(peer, "the run is named for another query than it puts")
    try:
        fields = json.loads(data)
        statistic = statistic_named(fields.pop("statistic"))
        parsed: dict[str, Any] = {
            "statistic": statistic.from_parameters(fields.pop("parameters")),
            "epsilon": parse_epsilon(fields.pop("epsilon")),
            "noise": Placement(fields.pop("noise")),
            "later": decode_later(fields),
        }
        for key, value in fields.items():
            if not isinstance(value, _KINDS.get(key, int)) or isinstance(value, bool):
                raise TypeError(f"{key} cannot be {value!r}")
        query = Query(nonce=nonce, **parsed, **fields)
    except MALFORMED as error:
        raise PeerError(peer, f"malformed query: {error}") from None
    if query.encode() != data:
        raise PeerError(peer, "malformed query: it is not in its canonical form")
    return query


_KINDS: dict[str, type | tuple[type, ...]] = {
    "aggregator": str,
    "asking": str,
    "data": str,
    "deadline": (int, float),
    "delta": (int, float),
    "law": str,
    "security": str,
    "rho": str,
}
