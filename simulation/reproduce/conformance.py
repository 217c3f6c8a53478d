"""The suite that every figure must pass; other packages import it too.

    from tallyroom.extend import FigureContract

    class TestMine(FigureContract):
        figure = MINE

It needs pytest, and runs the figure once, small.
"""

import json
from pathlib import Path

import pytest

from tallyroom.simulation.reproduce.contract import Figure, Outcome, Scale


class FigureContract:
    figure: Figure

    @pytest.fixture(scope="class")
    def outcome(self, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
        return self.figure.run(tmp_path_factory.mktemp("figure"), Scale.SMALL)

    def test_the_claim_is_one_line(self) -> None:
        assert self.figure.claim.strip()
        assert "\n" not in self.figure.claim

    def test_every_criterion_is_stated_and_decided(self, outcome: Outcome) -> None:
        assert outcome.criteria
        for criteria in (outcome.criteria, outcome.ours):
            assert all(words and isinstance(met, bool) for words, met in criteria.items())

    def test_a_verdict_on_ours_says_how_it_differs(self, outcome: Outcome) -> None:
        assert bool(outcome.ours) == bool(outcome.why)

    def test_a_small_run_decides_nothing(self, outcome: Outcome) -> None:
        assert outcome.verdict_at(Scale.SMALL) == "inconclusive"

    def test_files_are_there_and_named_for_the_figure(self, outcome: Outcome) -> None:
        assert any(path.suffix == ".png" for path in outcome.files)
        for path in outcome.files:
            assert path.name.startswith(self.figure.name)
            assert Path(path).stat().st_size > 0

    def test_the_document_is_json(self, outcome: Outcome) -> None:
        document = self.figure.document(outcome, Scale.SMALL)
        assert json.loads(json.dumps(document, allow_nan=False)) == document
