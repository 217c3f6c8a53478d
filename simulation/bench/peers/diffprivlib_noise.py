"""Noisy histograms and means by diffprivlib: a job with `values` in [0, 1], `bins`, `epsilon` and
trials. Its histogram is for one record added or removed: at ε/2 it covers one record replaced."""

import json
import sys
from typing import Any

from diffprivlib import BudgetAccountant, tools


def answer(job: dict[str, Any]) -> dict[str, Any]:
    values, epsilon = job["values"], job["epsilon"]

    def histogram() -> list[float]:
        counts, _ = tools.histogram(
            values,
            epsilon=epsilon / 2,
            bins=job["bins"],
            range=(0, 1),
            accountant=BudgetAccountant(),
        )
        return [float(count) for count in counts]

    def mean() -> list[float]:
        free = BudgetAccountant()
        return [float(tools.mean(values, epsilon=epsilon, bounds=(0, 1), accountant=free))]

    return {
        "histogram": [histogram() for _ in range(job["histogram_trials"])],
        "mean": [mean() for _ in range(job["mean_trials"])],
    }


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
