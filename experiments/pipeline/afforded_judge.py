"""Which judge a run with `judge: auto` has: `local` where it takes a small part of the run's time, else `rules`.

`local` reads better than the rules on models that neither has seen (benchmarks/RESULTS.md), and costs forward passes
of a small model. It is chosen before the run begins and written into its configuration, so that a run has one judge.
"""

from __future__ import annotations

from experiments.pipeline.cost import JUDGING_STEP
from experiments.pipeline.plan import estimate
from experiments.run.config import RunConfig
from extract.progress import Reporter

AFFORDED = 0.10  # share of a run's time that judging may take


def afforded_judge(config: RunConfig, until: str, reporter: Reporter) -> str:
    """Return the judge of a run that has none yet, and say what `local` would cost."""
    share = judging_share(config, until, reporter)
    judge = "local" if share <= AFFORDED else "rules"
    reporter.say(f"the judge is {judge}; local takes about {share:.0%} of the time")
    return judge


def judging_share(config: RunConfig, until: str, reporter: Reporter) -> float:
    """Return the share of a run's time that the judge `local` would take, about."""
    planned = estimate(config.model_copy(update={"judge": "local"}), until, reporter)
    plan = planned.plan()
    judging = [step for step in plan.steps if step.name == JUDGING_STEP]
    return plan.minutes(planned.machine, judging)[1] / plan.minutes(planned.machine)[1]
