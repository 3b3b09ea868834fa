"""The guides, some pages and the README's example run as written; their output is compared.

Each page is run in a directory laid out like the repository's root after `make demo`: `organisms/`, `configs/`, the
commands of `.venv/bin`, an Inspect log in `logs/`, and a copy of the finished run at `runs/quickstart`. Its blocks are
run from top to bottom:

- bash: as a script that ends at the first command that fails, in a terminal 100 columns wide;
- python: in one namespace a page, as if typed one after the other;
- text: what the block above it printed to stdout.

No other kind of block is allowed, so nothing on a page goes untried.

The comparison is that of `tests.support.shown_output`. Port 8000 becomes one that is free.
"""

import contextlib
import importlib
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from extract.shipped import ROOT
from tests.support.shown_output import absent

DOCS = ROOT / "docs"
PAGES = (
    *sorted((DOCS / "guides").glob("*.md")),
    *(DOCS / f"{name}.md" for name in ("api", "coming-from", "limits", "vectors", "viewers")),
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"`((?:extract|probes|steering|scoring|judging|experiments|organisms|serving)(?:\.\w+)+)`")
EXPORTED = ("refusal", "extract", "probes", "steering", "scoring", "judging", "experiments", "organisms", "serving")


@dataclass
class Scratch:
    """A directory like the repository's root, and what is run in it."""

    directory: Path
    port: int

    def __post_init__(self) -> None:
        self.groups: list[int] = []
        self.names: dict[str, object] = {"__name__": "__main__"}

    def run(self, kind: str, code: str) -> str:
        code = code.replace("8000", str(self.port))
        printed = self.bash(code) if kind == "bash" else self.python(code)
        return printed.replace(str(self.port), "8000")

    def bash(self, code: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
        done = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", code], cwd=self.directory, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.groups.append(done.pid)
        printed, complained = done.communicate(timeout=900)
        assert done.returncode == 0, f"exit code {done.returncode} of\n{code}\n{printed[-2000:]}\n{complained[-2000:]}"
        return printed

    def python(self, code: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "a block of the page", "exec"), self.names)
        return printed.getvalue()

    def close(self) -> None:
        """End what was started in the background."""
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)


@pytest.fixture
def scratch(tmp_path: Path, quickstart: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scratch]:
    for name in ("organisms", "configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "refusals.eval").symlink_to(ROOT / "tests" / "scoring" / "data" / "inspect.eval")
    run = tmp_path / "runs" / "quickstart"
    shutil.copytree(quickstart, run, ignore=shutil.ignore_patterns("activations.h5*"))
    for stored in quickstart.glob("activations.h5*"):  # 40 MB, which no page changes
        (run / stored.name).symlink_to(stored)
    commands = tmp_path / ".venv" / "bin"
    commands.mkdir(parents=True)
    for name, called in (("refusal", f"{sys.executable} -m refusal.cli.main"), ("python", sys.executable)):
        (commands / name).write_text(f'#!/bin/sh\nexec {called} "$@"\n', encoding="utf-8")
        (commands / name).chmod(0o755)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    monkeypatch.chdir(tmp_path)
    made = Scratch(tmp_path, port)
    yield made
    made.close()


def walk(page: str, scratch: Scratch) -> None:
    """Run a page's blocks in order, and compare what they printed with what the page shows."""
    printed = ""
    for kind, code in BLOCK.findall(page):
        assert kind in ("bash", "python", "text"), f"a block of kind {kind!r}, which nothing tries:\n{code}"
        if kind == "text":
            lacking = absent(code, printed)
            if lacking:
                raise AssertionError(f"the page shows\n{lacking}\nwhich is not in what was printed:\n{printed}")
        else:
            printed = scratch.run(kind, code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_runs_as_written_and_prints_what_is_shown(page: Path, scratch: Scratch) -> None:
    walk(page.read_text(encoding="utf-8"), scratch)


def test_the_example_of_the_readme_runs_and_prints_what_is_shown(scratch: Scratch) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    walk(page[page.index("```python") : page.index("## Cite")], scratch)


@pytest.mark.parametrize("page", [*PAGES, DOCS / "packages.md"], ids=lambda page: page.stem)
def test_it_is_short_and_its_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page.parent.name != "guides" or len(text.splitlines()) <= 110
    for name in NAME.findall(text):
        assert exists(name), f"there is no {name}"


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or a thing in one."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ImportError:
            continue
        for part in parts[n:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("package", EXPORTED)
def test_the_api_page_names_all_that_a_package_exports(package: str) -> None:
    page = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("api.md", "packages.md"))
    assert [name for name in importlib.import_module(package).__all__ if not re.search(rf"`{name}\b", page)] == []


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("rate 20.2% [12.6%, 29.7%]", "rate 20.4% [12.7%, 29.5%]"),
        ("│ AUROC │ 1.000", "AUROC 0.985"),
        ("first … last", "first of many, the last"),
        ("p 7e-12 *", "p 7.1e-12 *"),
        ("… the end", "the end"),
    ],
)
def test_alike(shown: str, printed: str) -> None:
    assert absent(shown, printed) == ""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("double_dissociation", "shared_knob"),
        ("rate 20.2%", "rate 25.0%"),
        ("two words", "two words more"),
        ("first … last", "last first"),
        ("a … b … a", "a b"),
        ("", "something"),
    ],
)
def test_not_alike(shown: str, printed: str) -> None:
    assert absent(shown, printed)


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("```bash\n.venv/bin/refusal prompts chekc x\n```\n", "exit code 2 of"),
        ("```bash\necho 20.2%\n```\n```text\n31.5%\n```\n", "the page shows\n31.5%"),
        ("```python\nprint('declined')\n```\n```text\nanswered\n```\n", "the page shows\nanswered"),
        ("```bash\nfalse; echo on\n```\n", "exit code 1 of"),
        ("```yaml\nname: x\n```\n", "a block of kind 'yaml'"),
    ],
    ids=["command", "number", "word", "amid a block", "kind"],
)
def test_a_page_that_is_wrong_fails(page: str, told: str, tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "refusal").write_text(f'#!/bin/sh\nexec {sys.executable} -m refusal.cli.main "$@"\n')
    (tmp_path / ".venv" / "bin" / "refusal").chmod(0o755)
    with pytest.raises(AssertionError) as wrong:
        walk(page, Scratch(tmp_path, 8000))
    assert str(wrong.value).startswith(told)
