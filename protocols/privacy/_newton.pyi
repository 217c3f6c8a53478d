"""The loop of `smoothing/newton.py`, fork by fork. Plans are trusted: they come from a skeleton."""

import numpy as np
from numpy.typing import NDArray

def advance(
    plan: NDArray[np.int32],
    above: NDArray[np.int32],
    nodes: NDArray[np.float64],
    gaps: NDArray[np.float64],
    factor: NDArray[np.float64],
    p: int,
    box: bool,
    primal: float,
    dual: float,
    /,
) -> tuple[float, float, float, float]: ...
def direction(
    plan: NDArray[np.int32],
    above: NDArray[np.int32],
    nodes: NDArray[np.float64],
    gaps: NDArray[np.float64],
    factor: NDArray[np.float64],
    p: int,
    box: bool,
    correct: bool,
    target: float,
    /,
) -> tuple[float, float, float, float, float]: ...
