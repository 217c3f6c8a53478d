"""The package's own tests of its statistic and its study: their contracts."""

from spread import NearTheMean, Within

from tallyroom.extend import StatisticContract, StudyContract


class TestWithin(StatisticContract):
    statistic = Within(centre=0.5, reach=0.25)


class TestNearTheMean(StudyContract):
    study = NearTheMean()
