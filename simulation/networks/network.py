"""Which role has which line: `wan` for all, or `party=mobile,server=lan`; and the emulation."""

from dataclasses import dataclass, field

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation.networks.profile import Profile, profile_of

ROLES = {"party": Role.PARTY, "server": Role.SERVER, "coordinator": Role.COORDINATOR}
WAYS = ("relays", "namespaces")
BY = "by"


@dataclass(frozen=True)
class Network:
    """A role's profile describes the line of each of its members; a role without one has no limits.
    The analyst sits beside the coordinator. `by` is one of `WAYS`."""

    lines: dict[Role, Profile] = field(default_factory=dict)
    by: str = WAYS[0]

    def line(self, role: Role) -> Profile:
        return self.lines.get(role, Profile())

    def between(self, one: Role, other: Role) -> Profile:
        return self.line(one).with_other(self.line(other))


def everywhere(profile: Profile) -> Network:
    return Network(dict.fromkeys(ROLES.values(), profile))


def network_of(text: str) -> Network:
    """Raises `LocalError` if `text` is not a network. Everything after a role's name up to the next
    name is its profile, so `party=delay=80ms,rate=10mbit,server=lan` gives the parties a rate
    too."""
    spelt: dict[Role | None, list[str]] = {}
    by, role = WAYS[0], None
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name == BY:
            if value not in WAYS:
                raise LocalError(f"{part[:60]}: networks are emulated by {' or '.join(WAYS)}")
            by = value
            continue
        if name in ROLES:
            role, part = ROLES[name], value
            if role in spelt:
                raise LocalError(f"a role has two lines in the network {text[:60]!r}")
        spelt.setdefault(role, []).append(part)
    if None in spelt and len(spelt) > 1:
        raise LocalError(f"{','.join(spelt[None])[:60]!r} has no role: name a role for each line")
    found = {role: profile_of(",".join(parts)) for role, parts in spelt.items()}
    if None in found:
        return Network(everywhere(found[None]).lines, by)
    if not found:
        raise LocalError(f"the network {text[:60]!r} has no line")
    return Network({role: profile for role, profile in found.items() if role is not None}, by)
