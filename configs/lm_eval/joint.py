"""Functions of the task refusal_joint, which lm-evaluation-harness loads from this directory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scoring.case import cases_of
from scoring.evaluation.suite import load_suite, prompts_of
from scoring.judges.rules import RuleJudge
from scoring.rates import mistakes
from scoring.readers.columns import PROMPT_FIELDS, attributes_of

JUDGE = RuleJudge()


def documents(suite: str = "core", sets: str | None = None, limit: int | None = None, **_: object) -> dict[str, Any]:
    """Return the prompts of a suite that are one question, with the fields that `refusal score` reads.

    Conversations of several turns, or with a system turn, are left out: the harness asks one text.
    """
    from datasets import Dataset

    prompts = prompts_of(load_suite(suite), None if sets is None else Path(sets), limit)
    cases, empty = cases_of(prompts), dict.fromkeys(PROMPT_FIELDS)
    asked = [prompt for prompt in prompts if len(prompt.messages) == 1]
    rows = [empty | attributes_of(one, cases[one.id].group) | {"id": one.id, "text": one.text} for one in asked]
    return {"test": Dataset.from_list(rows)}


def process_results(doc: dict[str, Any], results: Sequence[str | None]) -> dict[str, float]:
    """Return 1 for a mistake and 0 for none, NaN for rates that do not count this prompt or answer."""
    return mistakes(doc["label"], JUDGE.judge(results[0] or "", doc["text"]).action)


def rate(found: Sequence[float]) -> float:
    """Return the share of mistakes among the answers that count; NaN where none does."""
    known = [value for value in found if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
