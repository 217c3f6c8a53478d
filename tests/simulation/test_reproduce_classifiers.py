"""Figures about classifiers: what they measure, and criteria that doctored figures flip."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallyroom.simulation.reproduce import s0_calibration, s2_roc_examples
from tallyroom.simulation.reproduce.classified import made_up, messages, tweets
from tallyroom.simulation.reproduce.confidence import Mean
from tallyroom.simulation.reproduce.s0_calibration import Calibrated, Errors


class TestCalibration:
    def errors(self, **changes: Any) -> list[Errors]:
        """Bank varies more than Diabetes; `changes` are of Bank at ε = 1."""
        found = [
            Errors(data, way, epsilon, Mean(square / epsilon, 0.0), 1.0, varies, 0.1)
            for data, square, varies in (("bank", 0.5, 3.0), ("diabetes", 0.4, 1.0))
            for way in s0_calibration.WAYS
            for epsilon in (1.0, 2.0)
        ]
        return [replace(found[0], **changes), *found[1:]]

    @pytest.mark.parametrize(
        ("changes", "place"), [({"spread": 0.4}, 0), ({"statistic": 0.9}, 1), ({"spared": 0.3}, 2)]
    )
    def test_fig6_flips(self, changes: dict[str, float], place: int) -> None:
        assert all(s0_calibration.judge("s0-fig6", self.errors()).values())
        found = list(s0_calibration.judge("s0-fig6", self.errors(**changes)).values())
        assert found == [each != place for each in range(3)]

    def test_fig10_flips(self) -> None:
        good = self.errors()
        assert list(s0_calibration.judge("s0-fig10", good).values()) == [True, True]
        varied = s0_calibration.judge("s0-fig10", self.errors(statistic=0.9))
        assert list(varied.values()) == [True, False]
        rising = [replace(each, squared=Mean(each.epsilon, 0.0)) for each in good]
        assert list(s0_calibration.judge("s0-fig10", rising).values()) == [False, True]

    def test_only_the_lowest_predicted_count_is_spared(self) -> None:
        judged = Calibrated(made_up(500, 0.3, 1.0), 64)
        for way in s0_calibration.WAYS:
            noisy, spared = judged.private(way, Fraction(1), 0)
            differs = noisy.cells != spared.cells
            assert differs[0, 0]
            assert differs.sum() == 1

    def test_much_epsilon_finds_the_statistic(self) -> None:
        """Of scores on the grid, of which quantiles are then exact."""
        made = made_up(2000, 0.3, 1.0)
        data = replace(made, score=np.ceil(made.score * 1024) / 1024)
        judged = Calibrated(data, 1024)
        for way in s0_calibration.WAYS:
            found, _ = judged.private(way, Fraction(10**6), 0)
            assert found.statistic == pytest.approx(judged.truth.statistic, rel=1e-3)


class TestCurves:
    def panels(self, **areas: float) -> list[s2_roc_examples.Panel]:
        given = {"sms1": 0.05, "sms01": 0.09, "twitter1": 0.03, "twitter01": 0.08} | areas
        nothing = np.zeros((2, 2))
        return [
            s2_roc_examples.Panel(
                data, epsilon, "S2", nothing, nothing, given[data + epsilon.replace(".", "")]
            )
            for data in ("sms", "twitter")
            for epsilon in s2_roc_examples.EPSILONS
        ]

    @pytest.mark.parametrize(
        ("areas", "met"),
        [({}, [True, True]), ({"sms01": 0.11}, [False, True]), ({"twitter1": 0.06}, [True, False])],
    )
    def test_fig1_flips(self, areas: dict[str, float], met: list[bool]) -> None:
        assert list(s2_roc_examples.judge(self.panels(**areas), "S2").values()) == met

    def test_sizes_of_s2s_data(self) -> None:
        """SMS has 558 records; the 481 positive ones are those of S2's own draw."""
        sms, twitter = messages(), tweets()
        assert len(sms.score) == 558
        assert 440 <= sms.positive.sum() <= 520
        assert (len(twitter.score), twitter.positive.sum()) == (684, 385)
