"""Programs of others in a comparison of aggregators: what `tally meter` found of them."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallyroom.protocols.errors import LocalError

MOST_BYTES = 1 << 26
STATISTIC = "meter"
BEHAVIOUR = "a program that was metered; what it promises is for its makers to say"


@dataclass(frozen=True)
class ComparedProgram:
    """In the columns of an aggregator. What it was not asked for it does not have."""

    aggregator: str
    party_bytes: float
    total_bytes: int
    rounds: int
    servers: int
    server_cpu_seconds: float
    rmse: float = math.nan
    expected_rmse: None = None
    behaviour: str = BEHAVIOUR

    def as_json(self) -> dict[str, object]:
        return {
            "aggregator": self.aggregator,
            "servers": self.servers,
            "runs": 1,
            "rmse": self.rmse if math.isfinite(self.rmse) else None,
            "party_bytes": self.party_bytes,
            "total_bytes": self.total_bytes,
            "server_cpu_seconds": self.server_cpu_seconds,
            "rounds": self.rounds,
            "behaviour": self.behaviour,
            "caught": [],
        }

    def cells(self) -> tuple[str, ...]:
        return (
            self.aggregator,
            f"{self.rmse:.3g}" if math.isfinite(self.rmse) else "unknown",
            "unknown",
            f"{self.party_bytes:,.0f}",
            f"{1000 * self.server_cpu_seconds:.3g}",
            str(self.rounds),
            "not stated",
            "nobody",
        )


def read_metered(paths: Iterable[Path]) -> list[ComparedProgram]:
    """Raises `LocalError` for what is no document of `tally meter`."""
    return [_read(path) for path in paths]


def _read(path: Path) -> ComparedProgram:
    try:
        with path.open("rb") as file:
            source = file.read(MOST_BYTES + 1)
        if len(source) > MOST_BYTES:
            raise ValueError("it is too large")
        document: Any = json.loads(source)
        if document["statistic"] != STATISTIC:
            raise ValueError("it is of another command")
        bill, federation = document["communication"], document["federation"]
        if not bill["kernel"]:
            raise ValueError("its bytes were not counted")
        return ComparedProgram(
            aggregator=_name(federation["aggregator"]),
            party_bytes=_number(bill["party_bytes"]["mean"]),
            total_bytes=int(_number(bill["total_bytes"])),
            rounds=int(_number(bill["rounds"])),
            servers=int(_number(federation["servers"])),
            server_cpu_seconds=_number(document["timing"]["server_cpu_seconds"]),
            rmse=_number(document["error"]["rmse"]) if "error" in document else math.nan,
        )
    except OSError as error:
        raise LocalError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"{error}".splitlines()[0][:80] if f"{error}" else "it is none"
        raise LocalError(f"{path} is no result.json of `tally meter`: {reason}") from None


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= 60:
        raise ValueError("it has no name")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a number is missing")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value} is no cost")
    return float(value)
