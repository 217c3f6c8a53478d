"""A server whose whole store is an older copy is told so by what it signed, and begins nothing."""

import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation import Federation
from tallyroom.simulation.runtimes.processes import Processes


@pytest.mark.timeout(120)
def test_a_server_that_forgot_what_it_signed_begins_nothing(tmp_path: Path) -> None:
    store, copy = tmp_path / "stores", tmp_path / "copy"
    with Federation(
        parties=3, data="synthetic:scores?n=12", runtime="processes", hosts=1, store=store
    ) as federation:
        mean = Mean(value="score")
        federation.run(mean, Fraction(1, 4))
        runtime = federation.runtime
        assert isinstance(runtime, Processes)
        shutil.copytree(store / "server-1", copy)
        federation.run(mean, Fraction(1, 4))
        for name, folder in (("server-1", copy), ("server-1", tmp_path / "newest")):
            runtime.children[name].terminate()
            runtime.children[name].join()
            if folder is copy:
                shutil.move(store / name, tmp_path / "newest")
            else:
                shutil.rmtree(store / name)
            shutil.copytree(folder, store / name)
            runtime.restart(name)
            if folder is copy:
                with pytest.raises(RunFailed, match=r"server-1 refused: its ledger lacks run"):
                    federation.run(mean, Fraction(1, 4))
        assert federation.run(mean, Fraction(1, 4)).privacy.epsilon == 0.25
