"""Nobody can check what a peer puts into a circuit: whatever its bits say, on the grid or beyond,
the record that it meets moves the outputs by Δ at most, and outputs stay in their ranges."""

import numpy as np
import pytest

from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.circuit_builder import Builder, Word
from tallyroom.protocols.garbling.clear_evaluation import evaluate
from tallyroom.protocols.kernels.contract import Grid, Integers, Kernel, Output
from tallyroom.protocols.kernels.expression import Expression
from tallyroom.protocols.pairwise.roles.by_servers import pair_circuit
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.of_pairs import Gini, Pairwise, Variance
from tallyroom.protocols.statistics.pairwise import Pairs
from tests.protocols.pairwise.expression_samples import EXAMPLES
from tests.protocols.pairwise.gathering import Gathering, a_pairs_query, deal_base_ots, held
from tests.protocols.pairwise.kernel_samples import GRIDS, KINDS, every_code, on

MORE = (
    "a.x * b.x + a.x",
    "(a.x - b.x) * (a.x + b.x)",
    "if(a.x * b.x > 9, a.x, 2 * b.x)",
    "abs(a.x * a.x - b.x)",
)


class OfAnotherPackage(Kernel):
    """Nothing is said of its bits: the circuit sees to them. Two outputs, of which a record moves
    less than their ranges."""

    name = "another"
    columns = ("value",)

    @property
    def outputs(self) -> tuple[Output, ...]:
        grid = self.grids[0]
        return (Output("x", grid.low, grid.high), Output("y", grid.low, grid.high))

    @property
    def sensitivity(self) -> int:
        return self.grids[0].span

    def build(self, builder: Builder, x: tuple[Word, ...], y: tuple[Word, ...]) -> tuple[Word, ...]:
        return (x[0], y[0])

    def reference(self, x: Integers, y: Integers) -> Integers:
        return np.concatenate([x, y], axis=1)

    def decode(self, means: Column, exact: bool = False) -> float:
        return float(means[0])


def table(each: Kernel, circuit: Circuit, codes: Integers, by_servers: bool = False) -> Integers:
    """The outputs of the circuit for every two records, (first, second, outputs)."""
    count = len(codes)
    x, y = each.input_bits(np.repeat(codes, count, 0)), each.input_bits(np.tile(codes, (count, 1)))
    if by_servers:
        both = np.concatenate([x, y], axis=1)
        mask = np.random.default_rng(1).integers(0, 2, both.shape, dtype=np.uint8)
        x, y = both ^ mask, mask
    return each.values(evaluate(circuit, x, y)).reshape(count, count, -1)


def check_any_bits(each: Kernel) -> None:
    codes = every_code(each)
    on_grid = np.logical_and.reduce(
        [
            (grid.low <= code) & (code <= grid.high)
            for grid, code in zip(each.grids, codes.T, strict=True)
        ]
    )
    for name, circuit in {
        "parties": each.circuit(),
        "parties, swapped": each.circuit(swapped=True),
        "servers": pair_circuit(each),
    }.items():
        values = table(each, circuit, codes, by_servers=name == "servers")
        if name == "parties, swapped":
            values = values.swapaxes(0, 1)
        for out, found in zip(each.outputs, np.moveaxis(values, 2, 0), strict=True):
            assert out.low <= found.min() <= found.max() <= out.high, name
        for one in (values, values.swapaxes(0, 1)):  # whichever of the two is replaced
            moved = np.abs(one[:, None] - one[None]).sum(axis=3)
            assert moved.max() <= each.sensitivity, name
        x = np.repeat(codes[on_grid], on_grid.sum(), 0)
        y = np.tile(codes[on_grid], (on_grid.sum(), 1))
        told = values[on_grid][:, on_grid].reshape(len(x), -1)
        assert np.array_equal(told, each.reference(x, y)), name


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("kind", [*KINDS, OfAnotherPackage])
def test_a_record_of_any_bits_moves_a_bundled_kernel_by_its_sensitivity(
    kind: type[Kernel], grid: Grid
) -> None:
    wide = sum(column != "label" for column in kind.columns) * grid.bits > 6
    check_any_bits(on(kind, Grid.integers(-2, 1) if wide else grid))


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("text", [*EXAMPLES, *MORE])
def test_a_record_of_any_bits_moves_an_expression_by_its_sensitivity(text: str, grid: Grid) -> None:
    each = Expression("test", text)
    try:
        made = each([grid])
    except ValueError:
        return  # constant on this grid
    check_any_bits(made)


def test_columns_of_several_grids() -> None:
    text = "if(a.x > b.x, a.y * b.y, a.y + b.y)"
    check_any_bits(Expression("test", text)([Grid.integers(0, 2), Grid.integers(-1, 2)]))


UNIT = {"lower": 0.0, "upper": 1.0, "pairs_per_party": "all"}
STATISTICS: dict[str, Pairs] = {
    "gini": Gini(**UNIT, bits=4),  # type: ignore[arg-type]
    "variance": Variance(**UNIT, bits=4),  # type: ignore[arg-type]
    "product": Pairwise(**UNIT, bits=4, kernel_name="a.value * b.value"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("hostile", [0, 1], ids=["the evaluator", "the garbler"])
@pytest.mark.parametrize("name", STATISTICS)
def test_a_hostile_peer_learns_no_more_than_the_noise_is_for(
    name: str, hostile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through whole sessions: it meets one record, or another, and says whatever it likes of its
    own. The grid has 9 of 16 codes."""
    deal_base_ots(monkeypatch)
    found: dict[float, list[int]] = {}
    for honest in (0.0, 1.0):
        for code in range(16):
            holdings = held([1, 1], {"value": np.full(2, honest)})
            query = a_pairs_query(STATISTICS[name], holdings)
            gathering = Gathering(query, holdings, 2)
            gathering.blocks[hostile]._records = np.array([[code]])  # type: ignore[attr-defined]
            found.setdefault(honest, []).append(int(gathering.run().totals[0]))
    statistic = query.statistic
    assert isinstance(statistic, Pairs)
    assert statistic.kernel.grids[0] == Grid(0, 8, 3)
    moved = np.abs(np.array(found[0.0]) - np.array(found[1.0]))
    pairs = 1 if statistic.kernel.symmetric else 2
    assert 0 < moved.max() <= pairs * statistic.kernel.sensitivity
