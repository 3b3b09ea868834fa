"""Which judge a run with `judge: auto` has: `local` where it takes a small part of the run's time, else `rules`.

`local` reads better than the rules on models that neither has seen (benchmarks/RESULTS.md), and costs forward passes
of a small model. It is chosen before the run begins and written into its configuration, so that a run has one judge.
"""

from __future__ import annotations

from experiments.pipeline.cost import LONG_ANSWERS, SLOW
from experiments.pipeline.machine import bfloat16_gain
from experiments.pipeline.plan import RunEstimate, estimate
from experiments.run.config import RunConfig
from extract.progress import Reporter

AFFORDED = 0.10  # share of a run's time that judging may take
FLOP_A_TOKEN = 3.3e8  # two for each weight of the layers up to the probe's, 11 of 24 blocks of Qwen2.5-Coder-0.5B
FRAME = 24  # tokens beside a prompt and its completion, about
MOST_TOKENS = 352  # of a prompt and a completion, which are cut
ASKED = (
    0.6  # share of completions that the model reads (.45 to .7 of three models' answers); the rules are sure of others
)


def afforded_judge(config: RunConfig, until: str, reporter: Reporter) -> str:
    """Return the judge of a run that has none yet, and say what `local` would cost."""
    share = judging_share(estimate(config, until, reporter))
    judge = "local" if share <= AFFORDED else "rules"
    reporter.say(f"the judge is {judge}; local takes about {share:.0%} of the time")
    return judge


def judging_share(planned: RunEstimate) -> float:
    """Return the share of a run's time that the judge `local` would take, about."""
    plan, machine, new = planned.plan(), planned.machine, planned.config.generate.max_new_tokens
    completions = sum(s.completions if s.usual_completions is None else s.usual_completions for s in plan.steps)
    used = (LONG_ANSWERS if machine.of_model else SLOW).products
    tokens = min(MOST_TOKENS, plan.size.prompt_tokens + new) + FRAME
    speed = used * machine.flops * bfloat16_gain(machine)
    seconds = ASKED * completions * tokens * FLOP_A_TOKEN / speed
    return seconds / (60 * plan.minutes(machine)[1] + seconds)
