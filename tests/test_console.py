"""What is said appears as it is."""

import pytest

from selftaught import console
from selftaught.console import Reporter

ODD = "photos/:car:/[bold]x.jpg \\"
"""A name with what a terminal library may take for an emoji, for markup and for an escape."""


def test_names_are_printed_letter_by_letter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "PLAIN_INTERVAL", 0)
    Reporter().say(ODD)
    with Reporter().work(ODD, 2) as tell:
        tell(1, ODD)
    assert capsys.readouterr().err == f"{ODD}\n{ODD}: 1/2, {ODD}\n"


def test_names_in_the_progress_on_a_terminal_are_printed_letter_by_letter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TTY_COMPATIBLE", "1"), ("COLUMNS", "200"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    with Reporter().work(ODD, 2):
        pass
    assert ODD in capsys.readouterr().err


def test_a_narrow_terminal_cuts_off_the_end_of_a_long_word_and_no_label(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TTY_COMPATIBLE", "1"), ("COLUMNS", "80"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    reporter = Reporter()
    with reporter.work("training", 6) as tell:
        tell(1, f"epoch 1/2, 1 min 48 s left, {'x' * 80}")
        with reporter.work("embedding all images", 180):
            pass
    shown = capsys.readouterr().err
    assert "epoch 1/2, 1 min 48 s left" in shown
    assert "embedding all images" in shown
