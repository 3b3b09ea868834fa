"""A finished run in Weights & Biases: rates with limits, verdicts and figures; prompts and answers stay here."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from pydantic import JsonValue

from extract.errors import UserError, in_one_line
from refusal.finished_run import Run, load_run

if TYPE_CHECKING:
    import wandb

STATES = {"before": "before", "with dials": "with_dials"}  # columns of `Run.rates`, and what they are logged under
ENDS = {"value": "", "low": "_low", "high": "_high", "n": "_n"}


def log_run(
    run: Run | str | os.PathLike[str],
    *,
    project: str = "refusal-probes",
    name: str | None = None,
    offline: bool = False,
) -> str:
    """Log a run's rates with 95 % limits, verdicts, AUROCs and figures to Weights & Biases.

    No prompt and no answer is sent. What is summarised has the names of results.json, such as `before/missed_harm` and
    `with_dials/missed_harm_high`.

    Args:
        run: as of `load_run`, or its directory.
        name: of the run there; that of the run's configuration if none is given.
        offline: write files under the run's directory alone, which `wandb sync` sends later.

    Returns:
        The address of the logged run; of an offline one, its directory.

    Raises:
        UserError: wandb is not installed, is not logged in, or cannot be reached.

    >>> import refusal
    >>> "quickstart/wandb/offline-run-" in refusal.log_run("runs/quickstart", project="upgrades", offline=True)
    True
    """
    try:
        import wandb
    except ModuleNotFoundError:
        raise UserError("wandb is not installed; install it: pip install wandb") from None
    run = run if isinstance(run, Run) else load_run(run)
    os.environ.setdefault("WANDB_DISABLE_WEAVE", "true")  # which traces calls of models, with their prompts
    settings = wandb.Settings(
        silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True,
        x_save_requirements=False,
    )  # fmt: skip
    try:
        logged = wandb.init(
            project=project,
            name=name or run.results.name,
            dir=run.path,
            mode="offline" if offline else "online",
            config=_settings(run),
            settings=settings,
        )
    except (wandb.Error, OSError) as error:
        remedy = "" if offline else "; log in with wandb login, or log offline (offline=True, --offline)"
        raise UserError(f"Weights & Biases: {in_one_line(error)}{remedy}") from None
    with logged:
        logged.summary.update(summary(run))
        logged.log(_figures(run))
        directory = logged.settings.sync_dir
    return str(directory) if offline else str(logged.url)


def summary(run: Run) -> dict[str, float | int | str]:
    """Return the figures of a run by name: rates and AUROCs with limits and n, verdicts; unknown ones are left out."""
    figures: dict[str, float | int | str] = {}
    for state, named in STATES.items():
        table = run.rates[state]
        for rate, row in table.dropna(subset=["value"]).iterrows():
            figures |= {f"{named}/{rate}{end}": float(row[column]) for column, end in ENDS.items()}
    results = run.results
    for kind, site in results.sites.items():
        figures |= {f"auroc/{kind}{end}": value for end, value in zip(ENDS.values(), site.test.limits(), strict=False)}
    figures |= {"verdict/one_or_two": results.dissociation.verdict, "verdict/word_or_intent": results.triggers.verdict}
    share = results.triggers.trigger_share
    figures |= {} if share is None else {"trigger_share": share}
    return {name: value for name, value in figures.items() if isinstance(value, str) or math.isfinite(value)}


def _settings(run: Run) -> dict[str, JsonValue]:
    results = run.results
    return {
        "model": results.model.name,
        "weights": results.model.weights,
        "judge": results.judge,
        "prompts": {**results.prompts},
        "versions": {**results.versions},
    }


def _figures(run: Run) -> dict[str, wandb.Html]:
    """Return the charts as SVG, which needs no Pillow."""
    import wandb

    drawn = sorted((run.path / "figures").glob("*.svg"))
    return {f"figures/{path.stem}": wandb.Html(path.read_text(encoding="utf-8"), inject=False) for path in drawn}
