"""What a metered program cost, as the result of a run: the same JSON, a table and plots."""

import csv
import datetime as dt
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tallyroom.protocols.statistics.drawing import SEVERAL
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation.compared_programs import STATISTIC
from tallyroom.simulation.machine import machine
from tallyroom.simulation.meter.conduct import Metered
from tallyroom.simulation.meter.counted import UNKNOWN
from tallyroom.simulation.meter.traffic import PairTraffic, SentTraffic
from tallyroom.simulation.result import SCHEMA, version

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_BARS = 40
FIELDS = ("sender", "receiver", "phase", *vars(SentTraffic()))


@dataclass(frozen=True)
class MeterReport:
    metered: Metered
    command: str = ""
    date: str = field(default_factory=lambda: dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))

    @property
    def _ends(self) -> dict[str, Role]:
        """Everybody who may have sent something, with its role: members, or where all are of one
        command, its processes."""
        program = self.metered.program
        if program.apart:
            return {name: role.role for name, role in program.members.items()}
        named = {end for pair in self.metered.pairs for end in (pair.sender, pair.receiver)}
        return dict.fromkeys(sorted(named - {UNKNOWN}), Role.PARTY)

    def _role(self, name: str) -> str:
        role = self._ends.get(name)
        return UNKNOWN if role is None else role.label

    def links(self) -> dict[str, SentTraffic]:
        found: dict[str, SentTraffic] = defaultdict(SentTraffic)
        for pair in self.metered.pairs:
            found[f"{self._role(pair.sender)}->{self._role(pair.receiver)}"].add(pair.total)
        return dict(sorted(found.items()))

    def phases(self) -> dict[str, SentTraffic]:
        found: dict[str, SentTraffic] = defaultdict(SentTraffic)
        for pair in self.metered.pairs:
            for phase, carried in pair.phases.items():
                found[phase].add(carried)
        return {name: found[name] for name in self.metered.phases if name in found}

    @property
    def rounds(self) -> int:
        return max((pair.turns for pair in self.metered.pairs), default=0)

    def party_bytes(self) -> list[int]:
        """Sent and received by each party."""
        held = {name: 0 for name, role in self._ends.items() if role is Role.PARTY}
        for pair in self.metered.pairs:
            for end in (pair.sender, pair.receiver):
                if end in held:
                    held[end] += pair.total.bytes
        return list(held.values())

    def communication(self) -> dict[str, object]:
        whole = SentTraffic()
        for pair in self.metered.pairs:
            whole.add(pair.total)
        party = self.party_bytes() or [0]
        return {
            "total_bytes": whole.bytes,
            "messages": whole.packets,
            "rounds": self.rounds,
            "party_bytes": {"mean": sum(party) / len(party), "max": max(party)},
            "phases": {name: _tally(carried) for name, carried in self.phases().items()},
            "links": {name: _tally(carried) for name, carried in self.links().items()},
            "packets": whole.packets,
            "packet_bytes": whole.packet_bytes,
            "pairs": [_pair(pair) for pair in self.metered.pairs],
            "kernel": self.metered.kernel,
        }

    def roles(self) -> dict[str, dict[str, object]]:
        """CPU of all members of a role, and the most memory that a process of one had."""
        found: dict[str, dict[str, object]] = {}
        program = self.metered.program
        for role in program.roles:
            uses = [self.metered.uses[role.member(i)] for i in range(role.members)]
            found[role.name] = {
                "as": role.role.label,
                "members": role.members,
                "cpu_seconds": sum(use.cpu_seconds for use in uses),
                "peak_bytes": max(use.peak_bytes for use in uses),
            }
        return found

    def members(self) -> Iterator[dict[str, object]]:
        for number, (name, use) in enumerate(self.metered.uses.items()):
            processes = [each for each in self.metered.processes if each.member == number]
            yield {
                "name": name,
                "seconds": use.ended - use.began,
                "cpu_seconds": use.cpu_seconds,
                "user_seconds": use.user_seconds,
                "system_seconds": use.system_seconds,
                "peak_bytes": use.peak_bytes,
                "processes": [each.as_json() for each in processes],
            }

    def as_json(self) -> dict[str, object]:
        metered = self.metered
        ends = list(self._ends.values())
        document: dict[str, object] = {
            "schema": SCHEMA,
            "statistic": STATISTIC,
            "version": version(),
            "date": self.date,
            "command": self.command,
            **metered.figures,
        }
        if metered.figures.keys() >= {"estimate", "truth"}:
            error = abs(metered.figures["estimate"] - metered.figures["truth"])
            document["error"] = {"rmse": error, "max": error}
        document |= {
            "federation": {
                "parties": ends.count(Role.PARTY),
                "servers": ends.count(Role.SERVER),
                "aggregator": metered.program.name,
                "runtime": "metered",
                "network": metered.network,
                "seed": None,
            },
            "communication": self.communication(),
            "timing": {
                "total_seconds": metered.seconds,
                "server_cpu_seconds": self._cpu(Role.SERVER),
                "cpu_seconds": sum(use.cpu_seconds for use in metered.uses.values()),
                "phases": metered.phases,
            },
            "roles": self.roles(),
            "members": list(self.members()),
            "machine": machine(),
        }
        return document | ({"notes": list(metered.notes)} if metered.notes else {})

    def _cpu(self, role: Role) -> float:
        members = self.metered.program.members
        uses = self.metered.uses.items()
        return sum(use.cpu_seconds for name, use in uses if members[name].role is role)

    def write(self, folder: Path) -> list[Path]:
        """result.json, communication.csv and two plots; returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        document, table = folder / "result.json", folder / "communication.csv"
        document.write_text(json.dumps(self.as_json(), indent=1, allow_nan=False) + "\n")
        with table.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(FIELDS)
            for pair in self.metered.pairs:
                for phase, carried in pair.phases.items():
                    writer.writerow([pair.sender, pair.receiver, phase, *vars(carried).values()])
        plots = {"communication.png": self.bytes_figure(), "resources.png": self.use_figure()}
        for name, figure in plots.items():
            figure.savefig(folder / name)
        return [document, table, *(folder / name for name in plots)]

    def bytes_figure(self) -> "Figure":
        """Bytes by pair, the largest first, stacked by the sender's phase."""
        from tallyroom.simulation.reports.figures import new_figure

        pairs = sorted(self.metered.pairs, key=lambda pair: -pair.total.bytes)[:MOST_BARS]
        height = 1.6 + 0.28 * len(pairs)
        figure, axes = new_figure("Bytes by pair and phase", height=height)
        labels = [f"{pair.sender}->{pair.receiver}" for pair in pairs]
        left = [0] * len(pairs)
        for place, phase in enumerate(self.phases()):
            widths = [pair.phases.get(phase, SentTraffic()).bytes for pair in pairs]
            colour = SEVERAL[place % len(SEVERAL)]
            axes.barh(labels, widths, left=left, label=phase, height=0.6, color=colour)
            left = [one + other for one, other in zip(left, widths, strict=True)]
        axes.invert_yaxis()
        axes.set_xlabel("bytes")
        if pairs:
            figure.legend(loc="outside right upper", frameon=False, fontsize=8)
        return figure

    def use_figure(self) -> "Figure":
        """CPU and peak memory by member, those with most CPU first."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        uses = sorted(self.metered.uses.items(), key=lambda each: -each[1].cpu_seconds)[:MOST_BARS]
        height = 1.6 + 0.28 * len(uses)
        figure = Figure(figsize=(7.0, height), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        cpu, memory = figure.subplots(1, 2, sharey=True)
        names = [name for name, _ in uses]
        cpu.barh(names, [use.cpu_seconds for _, use in uses], height=0.6, color=SEVERAL[0])
        cpu.set_xlabel("CPU, s")
        megabytes = [use.peak_bytes / 1e6 for _, use in uses]
        memory.barh(names, megabytes, height=0.6, color=SEVERAL[1])
        memory.set_xlabel("peak memory of a process, MB")
        cpu.invert_yaxis()
        for axes in (cpu, memory):
            axes.spines[["top", "right"]].set_visible(False)
        return figure

    def lines(self) -> Iterator[tuple[str, str]]:
        """What a person is told."""
        metered, bill = self.metered, self.communication()
        yield "program", f"{metered.program.name}, network {metered.network}"
        for name, value in metered.figures.items():
            yield name, f"{value:.10g}"
        phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in metered.phases.items())
        yield "time", f"{metered.seconds:.3f} s" + (f" ({phases})" if metered.phases else "")
        for name, role in self.roles().items():
            cpu, peak = role["cpu_seconds"], role["peak_bytes"]
            assert isinstance(peak, int)
            yield (
                name,
                f"{role['members']} × {role['as']}: CPU {cpu:.3f} s, peak {peak / 1e6:,.1f} MB",
            )
        if not metered.kernel:
            return
        yield (
            "bill",
            f"{bill['total_bytes']:,} bytes in {bill['packets']:,} packets of "
            f"{bill['packet_bytes']:,} bytes with their headers; {bill['rounds']} rounds",
        )
        for pair in sorted(metered.pairs, key=lambda each: -each.total.bytes)[:MOST_BARS]:
            sent = pair.total
            lost = f", {sent.lost_packets:,} lost" if sent.lost_packets else ""
            label = f"{pair.sender}->{pair.receiver}"
            yield "", f"{label:<26}{sent.bytes:>14,} bytes {sent.packets:>9,} packets{lost}"


def _tally(carried: SentTraffic) -> dict[str, int]:
    return {"bytes": carried.bytes, "messages": carried.packets}


def _pair(pair: PairTraffic) -> dict[str, object]:
    ends: dict[str, object] = {"sender": pair.sender, "receiver": pair.receiver}
    return ends | pair.total.as_json() | {"turns": pair.turns}
