"""Makes tests/fixtures/small_run again: a finished run on half of the organism's prompts, with few null directions.

    python -m tests.support.make_small_run

From the repository's root; about two minutes of a core. Commit what it wrote when results or files of a run change.
Left out: activations, figures, the report and the cache of generations, which tests that need them make.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from experiments.pipeline.stages import run
from experiments.run.config import load_config

PLACE = Path("tests/fixtures/small_run")  # from the repository's root, as the run's config.yaml says it
SETTINGS = (
    f"prompts.path={PLACE}/prompts.jsonl", "extract.positions=[post_last]", "generate.max_new_tokens=12",
    "dissociate.positions=[post_last]", "dissociate.n_null_onset=79", "dissociate.n_null_generation=2",
    "dissociate.n_onset=8", "dissociate.n_side_effects=4", "dissociate.variants=false",
)  # fmt: skip
EVERY = 2  # one in so many pairs; with fewer the verdict is inconclusive
LEFT_OUT = ("activations.h5*", "figures", "generations.sqlite*", "log.txt", "report.html")


def some_prompts(every: int, organism: str = "two-knobs") -> list[str]:
    """Return the lines of one in so many of the organism's pairs, each whole."""
    rows = [json.loads(line) for line in Path(f"organisms/zoo/{organism}/prompts.jsonl").read_text().splitlines()]
    pairs = set(list(dict.fromkeys(row["pair"] for row in rows))[::every])
    return [json.dumps(row) for row in rows if row["pair"] in pairs]


def main() -> None:
    """Write the prompts, run on them, and drop what is large."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    (PLACE / "prompts.jsonl").write_text("\n".join(some_prompts(EVERY)) + "\n", encoding="utf-8")
    run(load_config(Path("configs/quickstart.yaml"), list(SETTINGS)), PLACE)
    for pattern in LEFT_OUT:
        for path in PLACE.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    print(f"{sum(path.stat().st_size for path in PLACE.rglob('*') if path.is_file()) / 1e6:.2f} MB in {PLACE}")


if __name__ == "__main__":
    main()
