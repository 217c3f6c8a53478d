"""Answers are kept within bounds, whole or not at all."""

import os
import resource
import signal
from pathlib import Path

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.storage.answers import Answers

NAMES = [number.to_bytes(8, "little") for number in range(20)]


def test_answers_outlive_their_keeper(tmp_path: Path) -> None:
    answers = Answers(tmp_path / "answers", durable=True)
    for name in NAMES[:3]:
        answers.keep(name, name * 5)
    again = Answers(tmp_path / "answers", durable=True)
    assert again.names() == NAMES[:3]
    assert [again.read(name) for name in NAMES[:4]] == [*(name * 5 for name in NAMES[:3]), None]


def test_a_foreign_file_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "the.answer").write_text("mine")
    with pytest.raises(LocalError, match=r"the\.answer is not a file of this store"):
        Answers(tmp_path, durable=True)
    assert (tmp_path / "the.answer").read_text() == "mine"


@pytest.mark.parametrize(("most", "most_bytes", "stay"), [(4, 10**6, 4), (100, 250, 2), (9, 10, 1)])
def test_the_oldest_go_when_there_are_too_many_or_too_large_ones(
    most: int, most_bytes: int, stay: int, tmp_path: Path
) -> None:
    """The newest stays even if it is too large by itself: somebody waits for it."""
    answers = Answers(tmp_path, durable=False, most=most, most_bytes=most_bytes)
    for name in NAMES:
        answers.keep(name, bytes(100))
    assert answers.names() == NAMES[-stay:]
    assert len(list(tmp_path.iterdir())) == stay
    assert Answers(tmp_path, durable=False).names() == NAMES[-stay:]


def test_no_room_keeps_what_there_was(tmp_path: Path) -> None:
    answers = Answers(tmp_path, durable=True)
    answers.keep(NAMES[0], b"paid for")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        for name in NAMES[:2]:
            with pytest.raises(OSError, match="too large"):
                answers.keep(name, bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert answers.names() == NAMES[:1]
    assert answers.read(NAMES[0]) == b"paid for"
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_crash_left_half_written_is_cleared_away(tmp_path: Path) -> None:
    Answers(tmp_path, durable=True).keep(NAMES[0], b"whole")
    (tmp_path / f"{NAMES[1].hex()}.new").write_bytes(b"ha")
    assert Answers(tmp_path, durable=True).names() == NAMES[:1]
    assert len(os.listdir(tmp_path)) == 1
