"""Every installed study under the contract."""

from protocols.statistics.moments import Mean
from protocols.studies import study_names
from protocols.studies.conformance import StudyContract, StudySteps
from protocols.studies.private_bounds import PrivateBounds
from protocols.studies.quantile_search import QuantileSearchStudy


class TestQuantileSearch(StudyContract):
    study = QuantileSearchStudy(lower=0.0, upper=1.0, halvings=5)


class TestQuantilesOnALogarithmicGrid(StudyContract):
    study = QuantileSearchStudy(
        lower=0.5, upper=64.0, spacing="log", quantile=(0.1, 0.9), halvings=4
    )


class TestPrivateBounds(StudySteps):
    """It has a statistic for a field, so the command builds it, and no name does."""

    study = PrivateBounds(Mean())


def test_every_installed_study_is_under_contract() -> None:
    tested = {kind.study.name for kind in StudyContract.__subclasses__()}
    assert tested == set(study_names())
