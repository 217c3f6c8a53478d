"""A short soak; `make soak MINUTES=60` is a long one."""

from pathlib import Path

from tests.soak.soak import soak


def test_a_troubled_federation_answers_rightly_and_within_bounds(tmp_path: Path) -> None:
    report = soak(5.0, tmp_path, pause=0.7)
    assert not report.faults, str(report)
    assert len(report.answers) >= 25, str(report)
    assert sum(report.trouble.values()) >= 2, str(report)
