"""Where the time of a question went: parts that add up to what a clock shows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tallyroom.protocols.wire.messages import Role
from tallyroom.protocols.wire.meter import Bill
from tallyroom.simulation.networks.network import Network, network_of
from tallyroom.simulation.networks.prediction import network_seconds, network_times
from tallyroom.simulation.networks.profile import PROFILES

Roles = dict[str, dict[str, float]]
"""What processes of a role took: how many they are, their CPU seconds, and the largest one's peak
of memory in bytes."""
START = "start"
"""The phase in which processes are started, which is no part of a question."""
NAMES = {role: role.label for role in (Role.PARTY, Role.SERVER, Role.COORDINATOR)}
_NONE = dict.fromkeys(NAMES.values(), 0.0)


@dataclass(frozen=True)
class Times:
    """`wall` is what a clock shows, without the start of processes. It is the sum of `waiting`,
    until deadlines for those that did not answer; `network`, the time of an emulated network by its
    formula; and `computing`, all the rest. `network_of` and `computing_of` are by role and add up
    to these. Computing is divided in proportion to the CPU that the roles' processes took, and not
    divided where that is not known. `elsewhere` is computing and network under other profiles,
    where a network was emulated: nobody is waited for there."""

    wall: float = 0.0
    waiting: float = 0.0
    network: float = 0.0
    network_of: dict[str, float] = field(default_factory=dict)
    computing_of: dict[str, float] = field(default_factory=dict)
    elsewhere: dict[str, float] = field(default_factory=dict)

    @property
    def computing(self) -> float:
        return self.wall - self.waiting - self.network

    @classmethod
    def of(
        cls,
        bill: Bill,
        seconds: Mapping[str, float],
        waited: float,
        network: Network | None,
        roles: Roles,
    ) -> "Times":
        wall = sum(each for phase, each in seconds.items() if phase != START)
        waiting = min(wall, waited)
        first = START in seconds
        if network is None:
            return cls(wall, waiting, computing_of=_by_cpu(wall - waiting, roles))
        spent = network_times(bill, network, first)
        whole = sum(spent.values())
        kept = min(1.0, (wall - waiting) / whole) if whole else 0.0
        computing = wall - waiting - kept * whole
        return cls(
            wall,
            waiting,
            kept * whole,
            {name: kept * spent[role] for role, name in NAMES.items()},
            _by_cpu(computing, roles),
            {name: computing + network_seconds(bill, network_of(name), first) for name in PROFILES},
        )

    @classmethod
    def together(cls, each: Iterable["Times"]) -> "Times":
        """Of questions one after another."""
        every = list(each)
        return cls(
            sum(one.wall for one in every),
            sum(one.waiting for one in every),
            sum(one.network for one in every),
            _added(one.network_of for one in every),
            _added(one.computing_of for one in every),
            _added(one.elsewhere for one in every),
        )

    @property
    def parts(self) -> dict[str, float]:
        """By the names of columns."""
        return {
            "wall_seconds": self.wall,
            "waiting_seconds": self.waiting,
            "network_seconds": self.network,
            "computing_seconds": self.computing,
        }

    @property
    def of_roles(self) -> dict[str, float]:
        """By the names of columns; those that are not known are left out."""
        network = {f"{role}_network_seconds": each for role, each in self.network_of.items()}
        return network | {f"{role}_computing_seconds": e for role, e in self.computing_of.items()}

    def as_json(self) -> dict[str, object]:
        """Empty fields are omitted."""
        listed = {
            "network_by_role": self.network_of,
            "computing_by_role": self.computing_of,
            "predicted_seconds": self.elsewhere,
        }
        return {**self.parts, **{name: each for name, each in listed.items() if each}}


PARTS = tuple(Times().parts)
COLUMNS = (*PARTS, *Times(network_of=_NONE, computing_of=_NONE).of_roles)
"""Of tables."""


def _by_cpu(computing: float, roles: Roles) -> dict[str, float]:
    taken = {name: roles.get(name, {}).get("cpu_seconds", 0.0) for name in NAMES.values()}
    whole = sum(taken.values())
    return {name: computing * cpu / whole for name, cpu in taken.items()} if whole else {}


def _added(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Empty where one of them is: a sum of the others would not be of the whole."""
    every = list(each)
    if not all(every):
        return {}
    return {name: sum(one[name] for one in every) for name in every[0]} if every else {}
