"""A real Chromium at a real `tally serve`. Where there is none, tests skip and say so."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
COMMAND = [sys.executable, "-c", "from tallyroom.simulation.command.main import main; main()"]
TOKEN = "a-token-of-the-tests"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@dataclass
class Served:
    """`tally serve` as a process of its own."""

    folder: Path
    address: str = ""
    process: "subprocess.Popen[str] | None" = None
    more: tuple[str, ...] = ()

    def start(self, port: int = 0) -> None:
        words = ["serve", str(self.folder), "--port", str(port), "--token", TOKEN, *self.more]
        self.process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.fullmatch(r"open (http://\S+?)/\?token=(.*)\n", self.process.stdout.readline())
        assert found is not None
        self.address = found[1]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "runs")
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: `make browser-test` gets one where it may")
    with playwright.sync_playwright() as engine:
        # Debian's own, for which root needs no sandbox of its own inside a container.
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Window:
    """A page whose console must stay silent."""

    page: Any
    said: list[str] = field(default_factory=list)

    def expect(self, selector: str, text: str, seconds: float = 30) -> None:
        playwright.expect(self.page.locator(selector).first).to_contain_text(
            text, timeout=1000 * seconds
        )

    def picture(self, name: str) -> None:
        """A screenshot for the documentation, where somebody wants it made anew."""
        if folder := os.environ.get("TALLY_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"))


@pytest.fixture
def window(chromium: Any, served: Served) -> Iterator[Callable[..., Window]]:
    windows: list[Window] = []

    def opened(size: tuple[int, int] = SIZES["desktop"], colours: str = "light") -> Window:
        width, height = size
        page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=colours)
        made = Window(page)
        page.on("console", lambda each: made.said.append(each.text) if each.type == "error" else 0)
        page.on("pageerror", lambda error: made.said.append(str(error)))
        page.goto(f"{served.address}/?token={TOKEN}")
        windows.append(made)
        return made

    yield opened
    for each in windows:
        each.page.close()
    assert [each.said for each in windows] == [[] for _ in windows]
