"""Open the judge that a name or a YAML file describes. What it needs (torch, openai) is loaded only then."""

from __future__ import annotations

from pathlib import Path

from scoring.judges import Judge
from scoring.judges.config import ClassifierConfig, EndpointConfig, load_judge
from scoring.judges.rules import RuleJudge


def open_judge(given: str, cache: Path | None = None) -> Judge:
    """Open the judge that is called `rules`, or that a YAML file describes.

    Args:
        given: `rules`, the path of a YAML file, or the name of one in configs/judges.
        cache: a file that keeps the replies of an endpoint, so that none is asked for twice; other judges need none.

    Raises:
        UserError: there is no such judge, its file does not fit, or its model cannot be had.
    """
    if given == "rules":
        return RuleJudge()
    match load_judge(given):
        case ClassifierConfig() as config:
            from judging.classifier import ClassifierJudge  # loads torch

            return ClassifierJudge(config)
        case EndpointConfig() as config:
            from scoring.judges.endpoint import EndpointJudge  # loads openai

            return EndpointJudge(config, cache)
