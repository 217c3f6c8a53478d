"""A program from its start to what it cost."""

import contextlib
import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tallyroom.simulation.meter.box import Box, BoxMember, MemberUse
from tallyroom.simulation.meter.counted import Counted, InNamespaces, OnLoopback, Together
from tallyroom.simulation.meter.processes import ProcessUse, ProcessWatch
from tallyroom.simulation.meter.program import Program
from tallyroom.simulation.meter.traffic import PairTraffic
from tallyroom.simulation.networks import namespaces

MARK = re.compile(rb"tally:(phase|estimate|truth) (\S{1,60})\s*")
PHASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,29}")
MOST_PHASES = 50
BEFORE = "start"
"""The phase of a member that has not named one yet."""

Show = Callable[[str, bytes], None]
"""The name of a member, and a line that it wrote."""


@dataclass(frozen=True)
class Metered:
    """`phases` are seconds of the member that was longest in each; `kernel` is what the kernel
    counted on all devices, headers included."""

    program: Program
    uses: dict[str, MemberUse]
    pairs: list[PairTraffic]
    processes: list[ProcessUse]
    phases: dict[str, float]
    figures: dict[str, float]
    network: str = "none"
    kernel: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        ends = [use.ended for use in self.uses.values() if not use.stopped]
        return max(ends) - min(use.began for use in self.uses.values())


class Marks:
    """What members say of themselves: `tally:phase NAME`, `tally:estimate NUMBER` and
    `tally:truth NUMBER`, each a line of its own."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self._now: dict[str, str] = {}
        self._said: dict[str, list[tuple[float, str]]] = {}
        self._names: set[str] = set()

    def phase(self, member: str) -> str:
        return self._now.get(member, BEFORE)

    def read(self, member: str, line: bytes, before: Callable[[], None]) -> bool:
        """Whether the line was one; `before` is called before a phase changes."""
        if (match := MARK.fullmatch(line)) is None:
            return False
        kind, word = match[1].decode(), match[2].decode(errors="replace")
        if kind != "phase":
            with contextlib.suppress(ValueError):
                if math.isfinite(number := float(word)):
                    self.figures[kind] = number
                    return True
            return False
        fits = PHASE.fullmatch(word) and len(self._names | {word}) <= MOST_PHASES
        if not fits:
            return False
        before()
        self._names.add(word)
        self._now[member] = word
        self._said.setdefault(member, []).append((time.monotonic(), word))
        return True

    def seconds(self, uses: dict[str, MemberUse]) -> dict[str, float]:
        """Of those that named a phase, if any did: a server may have nothing to say."""
        found: dict[str, float] = {}
        spoke = {name: use for name, use in uses.items() if name in self._said} or uses
        for member, use in spoke.items():
            spent: dict[str, float] = {}
            said = [(use.began, BEFORE), *self._said.get(member, ())]
            ends = [*(began for began, _ in said[1:]), use.ended]
            for (began, phase), ended in zip(said, ends, strict=True):
                spent[phase] = spent.get(phase, 0.0) + max(0.0, ended - began)
            for phase, seconds in spent.items():
                found[phase] = max(found.get(phase, 0.0), seconds)
        return found


def meter(program: Program, show: Show) -> Metered:
    """Raises `RunFailed` for a program that does not end well, and leaves nothing of it behind."""
    marks = Marks()
    watch = ProcessWatch(program.limits)
    notes: list[str] = []
    with contextlib.ExitStack() as undo:
        counted = _counting(program, marks, watch, notes)
        closing = undo.enter_context(contextlib.closing(counted))
        members = program.started_at(closing.addresses, closing.namespaces)
        box = Box(program.limits, _hearing(members, marks, counted, show), watch.look)
        uses = dict(zip((each.name for each in members), box.run(members), strict=True))
    if box.bounded:
        notes.append(f"the number of processes is bounded by looking at them only: {box.bounded}")
    if counted.missed:
        notes.append(
            f"{counted.missed:,} packets of {counted.kernel['sent_packets']:,} were not counted "
            "by pair: see `kernel` for all"
        )
    uses = {name: uses[name] for name in program.members}
    emulated = program.network is not None and isinstance(counted, InNamespaces)
    return Metered(
        program=program,
        uses=uses,
        pairs=counted.pairs(),
        processes=list(watch.found.values()),
        phases=marks.seconds(uses),
        figures=marks.figures,
        network=program.network_name if emulated else "none",
        kernel=counted.kernel,
        notes=tuple(notes),
    )


def _counting(program: Program, marks: Marks, watch: ProcessWatch, notes: list[str]) -> Counted:
    reason = namespaces.missing()
    if not reason:
        if program.apart:
            return InNamespaces(program, marks.phase)
        return Together(program, marks.phase, watch)
    notes.append(
        f"bytes, packets and rounds are not counted: network namespaces: {reason}; "
        "CPU, memory and time are"
    )
    if program.network is not None:
        notes.append(f"the network {program.network_name} is not emulated: all was on the loopback")
    if os.geteuid() != 0:
        notes.append("members are in no PID namespace: it needs root")
    return OnLoopback(program)


def _hearing(
    members: list[BoxMember], marks: Marks, counted: Counted, show: Show
) -> Callable[[int, bytes], None]:
    def hear(number: int, line: bytes) -> None:
        name = members[number].name
        if not marks.read(name, line, counted.drain):
            show(name, line)

    return hear
