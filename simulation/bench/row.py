"""One row of a benchmark: a rate, and its ratios to peers or limits measured in the same run."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """`ratios` maps each peer or limit to ours divided by it; `details` are further figures."""

    name: str
    rate: float
    unit: str
    ratios: dict[str, float] = field(default_factory=dict)
    details: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "rate": self.rate,
            "unit": self.unit,
            "ratios": self.ratios,
            **self.details,
        }


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The best wall time of `repeats` calls: noise on a shared machine only adds time."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
