"""S0 Eq. 3 as the paper solves it (§6.7): one variable a node of the tree, given to CVXOPT.

The reference that `smooth` is compared with. CVXOPT is an optional dependency, imported only here.
"""

import numpy as np
from cvxopt import matrix, solvers, spmatrix
from numpy.typing import NDArray

from tallyroom.protocols.privacy.smoothing.problem import Smoothed, checked

TIGHT = {"abstol": 1e-10, "reltol": 1e-10, "feastol": 1e-9}


def smooth_by_cvxopt(
    noisy: NDArray[np.float64],
    *,
    p: int,
    indices: NDArray[np.int64] | None = None,
    levels: int | None = None,
    box: bool = True,
    upper: float = 1.0,
    tolerances: dict[str, float] | None = None,
) -> Smoothed:
    """Does what `smooth` does, by CVXOPT's interior point with sparse matrices and its default
    tolerances."""
    noisy, indices, levels = checked(noisy, p, indices, levels, upper)
    path = (np.int64(2) ** levels + indices - 1)[:, None] >> np.arange(levels + 1)
    nodes, path = np.unique(path, return_inverse=True)
    path = path.reshape(len(indices), levels + 1)
    rows, columns, entries, rhs = _constraints(path, noisy, box, upper)
    if p == 1:  # ν = u⁺ − u⁻
        bound = np.arange(2 * len(nodes))
        problem_rows = np.concatenate([rows, rows, len(rhs) + bound])
        problem_columns = np.concatenate([columns, len(nodes) + columns, bound])
        problem_entries = np.concatenate([entries, -entries, -np.ones(len(bound))])
        rhs = np.concatenate([rhs, np.zeros(len(bound))])
    else:
        problem_rows, problem_columns, problem_entries = rows, columns, entries
    variables = len(nodes) * (3 - p)
    if not len(rhs):  # one point and no box: the curve stands as it is
        return Smoothed(noisy.copy(), 0.0, 0)
    inequalities = spmatrix(
        problem_entries.tolist(),
        problem_rows.tolist(),
        problem_columns.tolist(),
        (len(rhs), variables),
    )
    options = {"show_progress": False, **(tolerances or {})}
    if p == 1:
        answer = solvers.lp(matrix(1.0, (variables, 1)), inequalities, matrix(rhs), options=options)
        ν = np.array(answer["x"]).ravel()
        ν = ν[: len(nodes)] - ν[len(nodes) :]
    else:
        quadratic = spmatrix(2.0, range(variables), range(variables))
        linear = matrix(0.0, (variables, 1))
        answer = solvers.qp(quadratic, linear, inequalities, matrix(rhs), options=options)
        ν = np.array(answer["x"]).ravel()
    curve = noisy + ν[path].sum(axis=1)
    return Smoothed(curve, float(answer["primal objective"]), int(answer["iterations"]))


def _constraints(
    path: NDArray[np.int64], noisy: NDArray[np.float64], box: bool, upper: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Eq. 3's inequalities Gν ≤ h in triplets; nodes above both of two neighbours cancel."""
    before, after = path[:-1], path[1:]
    gap, level = np.nonzero(before != after)
    rows = [gap, gap]
    columns = [before[gap, level], after[gap, level]]
    entries = [np.ones(len(gap)), -np.ones(len(gap))]
    rhs = noisy[1:] - noisy[:-1]
    if box:
        ends = np.ones(path.shape[1])
        rows += [np.full(path.shape[1], len(rhs)), np.full(path.shape[1], len(rhs) + 1)]
        columns += [path[0], path[-1]]
        entries += [-ends, ends]
        rhs = np.append(rhs, [noisy[0], upper - noisy[-1]])
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(entries), rhs
