"""Noisy histograms and means by OpenDP: a job with `counts`, `mean`, `records`, `epsilon` and
`trials` of each. One record replaced moves two counts by one: the scale is 2/ε."""

import json
import sys
from typing import Any

import opendp.prelude as library


def answer(job: dict[str, Any]) -> dict[str, Any]:
    library.enable_features("contrib", "idealized-numerics")
    space = library.vector_domain(library.atom_domain(T=int)), library.l1_distance(T=int)
    histogram = library.m.make_laplace(*space, scale=2 / job["epsilon"])
    one = library.atom_domain(T=float, nan=False), library.absolute_distance(T=float)
    mean = library.m.make_laplace(*one, scale=1 / (job["epsilon"] * job["records"]))
    return {
        "histogram": [histogram(job["counts"]) for _ in range(job["histogram_trials"])],
        "mean": [[mean(job["mean"])] for _ in range(job["mean_trials"])],
    }


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
