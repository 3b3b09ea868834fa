"""Shared fixtures: the shipped organism, a small finished run that is committed, and one whole quickstart run.

`make test` divides the tests among processes (pytest-xdist); these make the quickstart run once between them. Its
`--dist loadgroup` would not do: xdist 3.8 under pytest 9.2 leaves the groups out without a word.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings
from threadpoolctl import threadpool_limits

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("REFUSAL_CACHE", str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "refusal"))
settings.register_profile("patient", deadline=None)  # how long an example takes depends on what else the machine does
settings.load_profile("patient")
os.fsync = lambda _file: None  # no test cuts the power, and each sync waits for the disk
WORKER = "PYTEST_XDIST_WORKER" in os.environ  # one of several processes that run tests
if WORKER:  # a thread each, before torch is imported and for what tests start: several on a core wait for one another
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    threadpool_limits(int(os.environ["OMP_NUM_THREADS"]))  # numpy is imported already, by jaxtyping's plugin

WHOLE_RUNS = {"quickstart", "random_run", "triggers_run"}  # fixtures; what asks for one is slow
ROOT = Path(__file__).resolve().parent.parent
ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"


def pytest_configure(config: pytest.Config) -> None:
    """Make non-convergence an error where tests run; named in pyproject.toml, it would import sklearn everywhere."""
    gc.disable()  # while tests are collected: nothing that is imported then becomes garbage
    if WORKER or not config.getoption("numprocesses", None):
        config.addinivalue_line("filterwarnings", "error::sklearn.exceptions.ConvergenceWarning")


def pytest_collection_finish() -> None:
    """Collect garbage again, but for what importing left."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark what needs a whole run as slow, and put slow files first, those of the whole run before all.

    `--dist worksteal` gives each process one stretch of the tests; who is done takes some from the end of another's. So
    one process makes the whole run and the others take over what it has not begun. Few draws are left out where `-m`
    leaves the many of their test.
    """
    for item in items:
        if WHOLE_RUNS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    whole = {item.path for item in items if "quickstart" in getattr(item, "fixturenames", ())}
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("simulation")}
    items.sort(key=lambda item: 0 if item.path in whole else 1 if item.path in slow else 2)
    yield
    many = {(item.path, item.originalname) for item in items if item.get_closest_marker("simulation")}
    items[:] = [i for i in items if not i.get_closest_marker("first_draws") or (i.path, i.originalname) not in many]


def refusal(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    command = [sys.executable, "-m", "refusal", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of the quickstart configuration, exactly as `make demo` makes it. Leave it as it was."""
    own = tmp_path_factory.getbasetemp()
    directory = (own.parent if WORKER else own) / "runs" / "quickstart"
    directory.parent.mkdir(exist_ok=True)
    with FileLock(directory.with_suffix(".lock")):
        if not (directory / "stdout.txt").exists():
            done = refusal("run", "configs/quickstart.yaml", "--out", str(directory))
            assert done.returncode == 0, done.stderr[-3000:]
            (directory / "stdout.txt").write_text(done.stdout, encoding="utf-8")
    return directory


@pytest.fixture(scope="session")
def two_knobs():
    """The shipped organism, loaded once in each process. Leave it as it was."""
    from extract.model.loading import load_model

    return load_model(str(ORGANISM), device="cpu")


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory, two_knobs) -> Path:
    """A copy of the finished run in fixtures/small_run (tests/support/make_small_run.py). Leave it as it was."""
    from tests.support.finished_run import copy_run

    return copy_run("small_run", tmp_path_factory.mktemp("finished") / "small_run", two_knobs)


@pytest.fixture(scope="session")
def smollm2() -> str:
    """The name of SmolLM2-135M-Instruct, fetched into the tests' cache; what needs it is skipped where it cannot be."""
    from extract.errors import UserError
    from extract.model.known_models import fetch

    try:
        fetch("smollm2-135m")
    except UserError as error:
        pytest.skip(str(error))
    return "smollm2-135m"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Call the command line in this process; returns (exit code, stdout, stderr)."""
    from refusal.cli.main import main

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["refusal", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return call


@pytest.fixture
def tiny():
    """A Llama of four layers with random weights and the organism's tokenizer; each test has its own."""
    from tests.support.tiny_model import tiny_llama

    return tiny_llama()


@pytest.fixture
def tiny_rows(tiny):
    """Five prompts of unlike lengths, rendered for `tiny`."""
    from tests.support.tiny_model import TEXTS, rendered

    return rendered(tiny, TEXTS)
