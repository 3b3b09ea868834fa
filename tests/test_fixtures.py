"""The committed runs are small, and the one of now is what its script would make again."""

from pathlib import Path

from experiments.run.config import load_config
from tests.support.finished_run import FIXTURES
from tests.support.make_small_run import EVERY, PLACE, SETTINGS, some_prompts


def test_the_committed_run_is_small() -> None:
    sizes = [path.stat().st_size for path in (FIXTURES / "small_run").rglob("*") if path.is_file()]
    assert max(sizes) < 500_000
    assert sum(sizes) < 1_700_000


def test_the_small_run_was_made_with_the_settings_and_prompts_of_its_script() -> None:
    """If this fails: python -m tests.support.make_small_run."""
    assert load_config(PLACE / "config.yaml") == load_config(Path("configs/quickstart.yaml"), list(SETTINGS))
    assert (PLACE / "prompts.jsonl").read_text().splitlines() == some_prompts(EVERY)
