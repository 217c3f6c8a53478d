"""What is public before a question is asked: all that a plan may depend on."""

from dataclasses import dataclass
from fractions import Fraction

from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.privacy.mechanisms import LAPLACE, Placement, noises_in


@dataclass(frozen=True)
class Facts:
    """`epsilon` is None where there is no noise, and `noise` says who draws it. Random choices,
    such as which records meet, are drawn from `seed`. One unit of privacy holds at most
    `records_per_unit` records. `offers` is what the aggregator can do (`protocols.offers`), `law`
    the name of the law of the noise (`NoiseLaw`)."""

    records: int
    parties: int
    servers: int
    max_records_per_party: int
    records_per_unit: int
    epsilon: Fraction | None
    delta: float
    noise: Placement
    honest: int
    seed: bytes
    offers: Offers = frozenset({Offer.SUM})
    law: str = LAPLACE

    @classmethod
    def of_one_server(
        cls,
        records: int,
        max_records_per_party: int = 1,
        epsilon: Fraction | None = None,
        inside: bool = False,
        seed: bytes = bytes(32),
    ) -> "Facts":
        """Of a small federation, for tests: one server adds the noise, or with `inside` pairs of
        parties do."""
        return cls(
            records=records,
            parties=max(1, records // max_records_per_party),
            servers=1,
            max_records_per_party=max_records_per_party,
            records_per_unit=1,
            epsilon=epsilon,
            delta=0.0,
            noise=Placement.PER_PAIR if inside else Placement.EACH_SERVER,
            honest=0,
            seed=seed,
        )

    @property
    def record_epsilon(self) -> Fraction | None:
        """The cost of replacing one record: noise of scale Δ over it, where that moves values by
        Δ, is `epsilon`-private for the unit."""
        return None if self.epsilon is None else self.epsilon / self.records_per_unit

    @property
    def noises(self) -> Fraction:
        """How many times the noise of one mechanism is in each released integer."""
        return noises_in(self.noise, self.parties, self.servers, honest=self.honest)

    @property
    def inside(self) -> bool:
        """Whether pairs of parties draw the noise inside their circuits."""
        return self.noise is Placement.PER_PAIR
