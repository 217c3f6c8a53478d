"""The verdicts of `tally reproduce` can fail: each criterion is flipped by doctored figures."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from tallyroom.simulation.reproduce import (
    ecdf_error,
    s0_communication,
    s0_inverse,
    s0_runtime,
    s0_smoothing,
)
from tallyroom.simulation.reproduce.confidence import Mean
from tallyroom.simulation.reproduce.contract import Outcome


def flipped(before: dict[str, bool], after: dict[str, bool]) -> list[int]:
    """Places of the criteria that were met and are not any more."""
    assert list(before) == list(after)
    assert all(before.values())
    return [place for place, name in enumerate(before) if not after[name]]


def near(value: float) -> tuple[float, ...]:
    """Runs with little spread around a mean."""
    return tuple(value + 0.001 * k for k in (-2, -1, 0, 1, 2))


def test_no_criteria_prove_nothing() -> None:
    assert Outcome({}, {}, []).verdict == "fails"
    assert Outcome({"a": True, "b": False}, {}, []).verdict == "fails"
    assert Outcome({"a": True}, {}, []).verdict == "holds"


class TestSmoothing:
    # ε, the 1-norm's ratio, the 2-norm's: the shape of the paper's Fig. 2.
    PICTURE = ((0.01, 5.0, 1.4), (0.1, 3.0, 1.1), (0.2, 2.0, 0.9), (1.0, 0.9, 0.6), (10, 0.8, 0.8))

    def ratios(self, changes: dict[float, tuple[float, float]]) -> list[s0_smoothing.Ratios]:
        points = {epsilon: (one, two) for epsilon, one, two in self.PICTURE} | changes
        return [
            s0_smoothing.Ratios(epsilon, 3.0, False, near(one), near(two))
            for epsilon, (one, two) in points.items()
        ]

    @pytest.mark.parametrize(
        ("changes", "places"),
        [
            ({0.2: (2.0, 1.01)}, [0]),
            ({0.1: (1.0, 1.1)}, [1]),
            ({0.01: (1.5, 1.4)}, [2]),
            ({10: (0.5, 0.5)}, [3]),
        ],
    )
    def test_fig2_verdict_flips(
        self, changes: dict[float, tuple[float, float]], places: list[int]
    ) -> None:
        before = s0_smoothing.judge_epsilon(self.ratios({}))
        assert flipped(before, s0_smoothing.judge_epsilon(self.ratios(changes))) == places

    def test_wide_intervals_prove_nothing(self) -> None:
        [*_, last] = self.ratios({})
        noisy = replace(last, two=(0.1, 1.5))
        assert not s0_smoothing.judge_epsilon([*self.ratios({})[:-1], noisy])[
            "2-norm ratio surely below 1 at every ε ≥ 0.2"
        ]

    def test_fig2_crossing(self) -> None:
        found = s0_smoothing.crossing(self.ratios({}), 2)
        assert found is not None
        assert math.isclose(found, math.sqrt(0.1 * 0.2), rel_tol=1e-6)
        assert s0_smoothing.crossing(self.ratios({})[3:], 2) is None

    @pytest.mark.parametrize(
        ("rate", "two", "places"),
        [(3.0, 1.0, [0, 2]), (1000.0, 0.9, [1, 3]), (1000.0, 1.06, [1, 3])],
    )
    def test_fig3_verdict_flips(self, rate: float, two: float, places: list[int]) -> None:
        picture = {0.1: 1.3, 3.0: 0.6, 30.0: 0.8, 1000.0: 1.0}

        def judged(points: dict[float, float]) -> dict[str, bool]:
            return s0_smoothing.judge_rate(
                [
                    s0_smoothing.Ratios(1.0, rate, False, near(two), near(two))
                    for rate, two in points.items()
                ]
            )

        assert flipped(judged(picture), judged(picture | {rate: two})) == places

    def test_same_numbers_again(self) -> None:
        first, second = (s0_smoothing.measure(64, 3, 3.0, Fraction(1)) for _ in range(2))
        assert first == second


class TestInverse:
    def errors(self, epsilon: float, *values: float) -> s0_inverse.Errors:
        means = (Mean(value, 0.0) for value in values)
        return s0_inverse.Errors(epsilon, dict(zip(s0_inverse.ERRORS, means, strict=True)))

    @pytest.mark.parametrize(
        ("doctored", "places"),
        [
            ((1.0, 1e-2, 1e-3, 1e-3, 9e-4), [0]),
            ((1.0, 1e-2, 2e-2, 2e-2, 1.9e-3), [0, 1]),
            ((0.01, 9.0, 1e-1, 1e-1, 9e-2), []),  # outside the judged ε
            ((0.01, 9.0, 1e-0, 1e-1, 9e-2), [1]),
        ],
    )
    def test_verdict_flips(self, doctored: tuple[float, ...], places: list[int]) -> None:
        good = [self.errors(0.1, 3e-2, 1e-2, 1e-2, 5e-3), self.errors(10, 2e-6, 3e-6, 2e-6, 2e-6)]
        after = s0_inverse.judge([*good, self.errors(*doctored)])
        assert flipped(s0_inverse.judge(good), after) == places


class TestRuntime:
    def times(self, points: int, lp: float, qp: float) -> s0_runtime.Times:
        both = {"cvxopt_lp": near(lp), "cvxopt_qp": near(qp)}
        return s0_runtime.Times(points, both | {"ours_1": near(lp), "ours_2": near(qp)})

    def test_verdict_flips(self) -> None:
        good = [self.times(16, 2.0, 1.0), self.times(64, 9.0, 3.0)]
        assert flipped(s0_runtime.judge(good), s0_runtime.judge(good)) == []
        after = s0_runtime.judge([*good, self.times(256, 9.0, 9.5)])
        assert flipped(s0_runtime.judge(good), after) == [0]

    def test_exponent(self) -> None:
        line = [
            s0_runtime.Times(n, {"ours_1": (1e-6 * n**1.5,) * 3}) for n in (2, 4, 8, 16, 32, 64)
        ]
        assert math.isclose(s0_runtime.exponent(line, "ours_1"), 1.5)


class TestCommunication:
    def test_verdict_flips_by_a_byte(self) -> None:
        metered = [
            s0_communication.meter(way, n, thresholds)
            for way in ("pointwise", "keys")
            for n in (8, 16)
            for thresholds in (4, 16, 64)
        ]
        crossings: dict[int, int | None] = {8: 194, 16: 194}
        before = s0_communication.judge(metered, crossings)
        first, pointwise, keys = metered[0], metered[1], metered[8]
        doctored = [
            (0, replace(first, query=2 * first.query), [3]),
            (1, replace(pointwise, uploads=pointwise.uploads + 1), [0]),
            (8, replace(keys, uploads=keys.uploads + 1), [1]),
            (8, replace(keys, shares=keys.shares + 1), [2]),
        ]
        for place, changed, places in doctored:
            tried = [*metered[:place], changed, *metered[place + 1 :]]
            assert flipped(before, s0_communication.judge(tried, crossings)) == places
        after = s0_communication.judge(metered, crossings | {16: None})
        assert flipped(before, after) == [4]

    def test_pointwise_at_the_price_of_keys_is_not_linear(self) -> None:
        keys = [s0_communication.meter("keys", 8, thresholds) for thresholds in (4, 16)]
        flat = [replace(each, way="pointwise") for each in keys]
        judged = s0_communication.judge([*flat, *keys], {8: 194})
        assert [place for place, met in enumerate(judged.values()) if not met] == [0]

    def test_repeating_pays_for_every_question(self) -> None:
        once, thrice = (s0_communication.meter_repeated(8, count) for count in (1, 3))
        assert thrice.total == 3 * once.total

    def test_crossing(self) -> None:
        def keys(_: int) -> int:
            return 500

        assert s0_communication.crossing(lambda count: 100 + 8 * count, keys) == 51
        assert s0_communication.crossing(lambda count: 600, keys) == 1
        assert s0_communication.crossing(lambda count: 400, keys) is None


class TestEcdfError:
    def errors(self, tree: float, hierarchy: float, smoothed: float) -> list[ecdf_error.Errors]:
        squares = {
            "tree": tuple(tree * x for x in near(1.0)),
            "hierarchy": tuple(hierarchy * x for x in near(1.0)),
            "hierarchy_smoothed": tuple(smoothed * x for x in near(1.0)),
        }
        theory = {"tree": 8.0, "hierarchy": 1.0}
        return [ecdf_error.Errors(epsilon, squares, theory) for epsilon in (0.1, 1.0)]

    @pytest.mark.parametrize(
        ("measured", "places"),
        [
            ((6.9, 1.0, 0.9), [0, 1]),
            ((8.1, 1.0, 0.9), [1]),
            ((8.0, 0.9, 0.8), [2]),
            ((8.0, 1.0, 1.1), [3]),
        ],
    )
    def test_verdict_flips(self, measured: tuple[float, float, float], places: list[int]) -> None:
        before = ecdf_error.judge(self.errors(8.0, 1.0, 0.9))
        assert flipped(before, ecdf_error.judge(self.errors(*measured))) == places

    def test_theory_is_met_and_halved_noise_is_caught(self) -> None:
        """200 runs of N = 256, whose squared errors have a relative deviation below 0.6.

        Their mean has one of 0.042, so that 0.35 is 8 of them: more than the slightly heavy tail of
        squared Laplace sums needs for a right program to fail less than once in a million. Noise
        of half the scale, a quarter of the error, is 0.75 away.
        """
        errors = ecdf_error.measure(256, 200, Fraction(1))
        for name in ("tree", "hierarchy"):
            ratio = errors.mean(name).value / errors.theory[name]
            assert abs(ratio - 1) < 0.35
            assert abs(ratio / 4 - 1) > 0.35


class TestMean:
    def test_interval(self) -> None:
        """Student's t at 95 % with 4 degrees of freedom is 2.776."""
        mean = Mean.of([1.0, 2.0, 3.0, 4.0, 5.0], 0.95)
        assert mean.value == 3.0
        assert math.isclose(mean.half_width, 2.776445 * math.sqrt(2.5 / 5), rel_tol=1e-6)
        assert mean.covers(3.0)
        assert not mean.surely_below(3.1)
        assert mean.surely_below(5.0)
        assert mean.surely_above(1.0)

    def test_one_run_bounds_nothing(self) -> None:
        with pytest.raises(ValueError, match="two runs"):
            Mean.of([1.0])
