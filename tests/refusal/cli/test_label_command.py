"""`refusal label` as a person at a terminal meets it: keys, undo, quitting and going on, two annotators."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from extract.shipped import ROOT
from refusal.cli.label import ACTION_OF_KEY
from refusal.cli.options import visible
from scoring.actions import ACTIONS
from scoring.score_file import score_file
from tests.support.labelled_completions import TRUTH, write_completions
from tests.support.one_line import one_line

pytestmark = pytest.mark.slow

PATIENCE = 60.0  # seconds
KEY = {action: key for key, action in ACTION_OF_KEY.items()}


class Terminal:
    """A process on a pseudo-terminal: `press` keys, `until` a text is on the screen."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master, self._process, self.seen = master, process, ""

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def until(self, pattern: str) -> str:
        """Return what is shown from the last key up to a match; the rest is kept for the next call."""
        limit = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.seen)) is None:
            assert time.monotonic() < limit, f"no {pattern!r} in:\n{self.seen}"
            if not self._read():
                found = re.search(pattern, self.seen)
                assert found, f"ended without {pattern!r}:\n{self.seen}"
                break
        shown, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return shown

    def end(self) -> tuple[int, str]:
        while self._read():
            pass
        return self._process.wait(PATIENCE), self.seen

    def _read(self) -> bool:
        if not select.select([self._master], [], [], 1.0)[0]:
            return self._process.poll() is None
        try:
            self.seen += os.read(self._master, 1 << 16).decode().replace("\r\n", "\n")
        except OSError:  # the other side is closed
            return False
        return True


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "LINES": "40", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "refusal", "label", *arguments],
        stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    score_file(write_completions(tmp_path / "completions.jsonl", 120), tmp_path)
    return tmp_path


def labels(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]


def drawn(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "labels.draw.json").read_text())["rows"]


def label_all(screen: Terminal, folder: Path, who: str, n: int, *, start: int = 0, wrong: int = 0) -> None:
    for done in range(start, n):
        screen.until(f"{who}: {done} of {n} labelled")
        screen.until("q quit")
        truth = TRUTH[int(drawn(folder)[done]["id"][1:])]
        screen.press(KEY["other" if done < wrong else truth])


def finish(screen: Terminal) -> str:
    screen.until("any other key ends")
    screen.press("x")
    code, last = screen.end()
    assert code == 0
    return last


def test_keys_label_skip_undo_and_quit_and_each_label_is_on_disk_at_once(scores: Path) -> None:
    with terminal(str(scores), "--annotator", "ann", "--n", "6") as screen:
        first = screen.until("q quit")
        for action in ACTIONS:
            assert f"{KEY[action]} {action}" in first
        screen.press("1")
        screen.until("ann: 1 of 6 labelled")
        assert [(row["action"], row["annotator"], row["inclusion"], row["seed"]) for row in labels(scores)] == [
            ("answer", "ann", 0.05, 0)
        ]
        screen.until("q quit")
        screen.press("z")
        screen.until("no such key: 'z'")
        screen.press("u")
        screen.until("ann: 0 of 6 labelled")
        assert labels(scores) == []
        screen.until("undone: answer")
        screen.press("u")
        screen.until("there is no label of this session to undo")
        screen.press("s")
        screen.until("skipped: it comes again")
        screen.press(KEY["refuse"])
        screen.until("ann: 1 of 6 labelled")
        screen.until("q quit")
        screen.press("q")
        code, last = screen.end()
    assert code == 0
    assert "ann: 1 of 6 labelled" in last
    (row,) = labels(scores)
    assert (row["id"], row["action"]) == (drawn(scores)[1]["id"], "refuse")  # the first one was skipped


def test_the_judge_is_never_on_the_screen_and_no_completion_can_control_the_terminal(tmp_path: Path) -> None:
    text = "Sure.\x1b[2J\x1b]0;title\x07 It is blue." + " More words follow here." * 300
    row = {"id": "a", "text": "Which \x1b[31mcolour?", "label": "benign", "completion": text}
    (tmp_path / "completions.jsonl").write_text(json.dumps(row) + "\n")
    score_file(tmp_path / "completions.jsonl", tmp_path)
    evidence = json.loads((tmp_path / "scored.jsonl").read_text())["evidence"]
    with terminal(str(tmp_path), "--annotator", "ann") as screen:
        cut = screen.until("q quit")
        assert "more lines: m shows them" in cut
        screen.press("m")
        whole = screen.until("q quit")
        screen.press("\x03")  # Ctrl-C
        code, last = screen.end()
    assert code == 0
    assert whole.count("More words") > cut.count("More words") > 0
    assert "more lines" not in whole
    for shown in (cut, whole, last):
        assert "\x1b]0;title" not in shown
        assert "\x1b[31m" not in shown
        assert evidence not in shown
        assert "benign" not in shown
    assert "Which \ufffd[31mcolour?" in cut


def test_two_annotators_go_on_where_they_stopped_and_their_agreement_is_printed(scores: Path) -> None:
    arguments = (str(scores), "--n", "24")
    with terminal(*arguments, "--annotator", "ann") as screen:
        label_all(screen, scores, "ann", 24)
        screen.until("any other key ends")
        screen.press("u")
        screen.until("ann: 23 of 24 labelled")
        screen.until("q quit")
        screen.press("\x04")  # Ctrl-D
        code, last = screen.end()
    assert (code, len(labels(scores))) == (0, 23)
    assert "kappa" not in last
    with terminal(*arguments, "--annotator", "ann") as screen:
        label_all(screen, scores, "ann", 24, start=23)
        finish(screen)
    with terminal(*arguments, "--annotator", "bob") as screen:
        label_all(screen, scores, "bob", 24, wrong=3)
        last = finish(screen)
    assert "ann and bob: same action 87.5%" in last
    assert re.search(r"Cohen's kappa 0\.\d\d \[", last)
    assert {row["id"] for row in labels(scores) if row["annotator"] == "ann"} == {row["id"] for row in drawn(scores)}
    assert len(labels(scores)) == 48
    card = score_file(scores / "completions.jsonl", scores / "corrected", labels=scores / "labels.jsonl")
    assert card.corrected
    assert card.corrected.annotators == {"ann": 24, "bob": 24}


def test_more_labels_extend_the_draw_and_another_draw_needs_another_file(scores: Path) -> None:
    with terminal(str(scores), "--annotator", "ann", "--n", "2") as screen:
        label_all(screen, scores, "ann", 2)
        finish(screen)
    before = [row["id"] for row in drawn(scores)]
    with terminal(str(scores), "--annotator", "ann", "--n", "6") as screen:
        screen.until("ann: 2 of 6 labelled")
        screen.until("q quit")
        screen.press("q")
        assert screen.end()[0] == 0
    assert [row["id"] for row in drawn(scores)[:2]] == before
    assert [(row["id"], row["inclusion"], row["seed"]) for row in labels(scores)] == [(i, 0.05, 0) for i in before]
    for given, said in ((["--seed", "4"], "seed 0, not 4"), (["--stratify"], "stratified False, not True")):
        with terminal(str(scores), "--annotator", "ann", *given) as screen:
            code, last = screen.end()
        assert code == 2
        assert said in last
        assert "Traceback" not in last


def test_no_key_typed_ahead_is_lost(scores: Path) -> None:
    with terminal(str(scores), "--annotator", "ann", "--n", "9") as screen:
        screen.until("ann: 0 of 9 labelled")
        screen.press("1234" + "5678" + "u" + "2q")
        code, last = screen.end()
    assert code == 0
    assert [row["action"] for row in labels(scores)] == [*ACTIONS[:7], ACTIONS[1]]
    assert "ann: 8 of 9 labelled" in last


def test_without_a_terminal_it_is_one_line(scores: Path, cli: Any) -> None:
    one_line(cli("label", str(scores), "--annotator", "ann"), "refusal: refusal label needs a terminal")
    assert not (scores / "labels.draw.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{scores}/nothing", "--annotator", "ann"], "neither a run directory nor a scored file"),
        *(
            pytest.param(*given, marks=pytest.mark.slow)
            for given in (
                (["{scores}", "--annotator", " "], "--annotator is empty"),
                (["{scores}", "--annotator", "ann", "--out", "{scores}/labels.csv"], "name that ends in .jsonl"),
                (["{scores}", "--annotator", "ann", "--out", "{scores}/scored.jsonl/labels.jsonl"], "cannot write"),
            )
        ),
    ],
)
def test_a_wrong_argument_is_one_line(scores: Path, arguments: list[str], said: str) -> None:
    with terminal(*(argument.format(scores=scores) for argument in arguments)) as screen:
        code, last = screen.end()
    assert code == 2
    assert said in last
    assert len(last.strip().splitlines()) == 1


def test_control_characters_are_visible() -> None:
    assert visible("a\tb\nc\x1b[2J\u200bd") == "a b\nc\ufffd[2J\ufffdd"
