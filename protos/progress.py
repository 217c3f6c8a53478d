"""How far a run has come, on the wire. Whoever reads it believes no size and no name."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.run.party_states import MOST_SHOWN, PartyProgress
from tallyroom.protocols.wire.messages import Phase, Role
from tallyroom.protocols.wire.meter import Bill, Meter, Tally
from tallyroom.protos import tally_pb2 as pb

LABELS = frozenset(f"{sender.label}->{receiver.label}" for sender in Role for receiver in Role)
MOST_BYTES = 2**63 - 1


def links_to_wire(links: Mapping[str, Tally]) -> list[pb.LinkTally]:
    return [
        pb.LinkTally(link=label, bytes=tally.bytes, messages=tally.messages)
        for label, tally in links.items()
    ]


def links_from_wire(links: Iterable[pb.LinkTally]) -> dict[str, Tally]:
    """Links that there are, each once; anything else is left out."""
    found: dict[str, Tally] = {}
    for each in links:
        sized = each.bytes <= MOST_BYTES and each.messages <= MOST_BYTES
        if each.link in LABELS and each.link not in found and sized:
            found[each.link] = Tally(each.bytes, each.messages)
    return found


def states_from_wire(states: bytes, parties: int) -> NDArray[np.uint8]:
    """Empty unless it is one known state per party."""
    found = np.frombuffer(states, dtype=np.uint8)
    if len(found) != parties or parties > MOST_SHOWN or (found > max(PartyProgress)).any():
        return np.zeros(0, dtype=np.uint8)
    return found


def status_to_wire(meter: Meter | None, parties: int) -> pb.RunStatus:
    """What a station metered so far of a run among so many parties."""
    if meter is None:
        return pb.RunStatus()
    bill = Bill([meter], parties)
    submitted = bill.by_phase().get(Phase.SUBMIT.label, Tally())
    shown = meter.submitted(min(parties, MOST_SHOWN))
    return pb.RunStatus(
        submissions=submitted.messages,
        bytes=submitted.bytes,
        links=links_to_wire(bill.by_link()),
        submitted=np.packbits(shown).tobytes(),
    )


def submitted_from_wire(statuses: Iterable[pb.RunStatus], parties: int) -> NDArray[np.bool_]:
    """Who has submitted to every server that heard from anybody."""
    heard = []
    for status in statuses:
        bits = np.frombuffer(bytes(status.submitted)[: (parties + 7) // 8], dtype=np.uint8)
        found = np.unpackbits(bits)[:parties].astype(bool)
        if found.any():
            heard.append(np.pad(found, (0, parties - len(found))))
    return np.logical_and.reduce(heard) if heard else np.zeros(parties, dtype=bool)


def added(tallies: Iterable[Mapping[str, Tally]]) -> dict[str, Tally]:
    """Links of several stations together."""
    whole: dict[str, Tally] = {}
    for links in tallies:
        for label, tally in links.items():
            before = whole.get(label, Tally(0, 0))
            whole[label] = Tally(before.bytes + tally.bytes, before.messages + tally.messages)
    return {label: whole[label] for label in sorted(whole)}
