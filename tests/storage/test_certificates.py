"""Servers' certificates outlive the process that heard them."""

from pathlib import Path

from tallyroom.storage.certificates import MAX_CERTIFICATE, Certificates


def test_they_are_there_again_after_a_restart(tmp_path: Path) -> None:
    kept = Certificates(tmp_path / "certificates")
    kept.keep(0, b"old")
    kept.keep(0, b"new")
    kept.keep(12, b"other")
    (tmp_path / "certificates" / "server-1.new").write_bytes(b"torn")
    (tmp_path / "certificates" / "server-x.pem").write_bytes(b"stray")
    assert Certificates(tmp_path / "certificates") == {0: b"new", 12: b"other"}


def test_what_is_no_certificate_costs_no_memory(tmp_path: Path) -> None:
    kept = Certificates(None)
    kept.keep(0, bytes(MAX_CERTIFICATE + 1))
    assert kept == {}
