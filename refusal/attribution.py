"""Attribution of a refusal to words: which word of one request makes the model refuse."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from experiments.report.results import RunResults
from experiments.responses.onset import Onsets, learn_onsets
from experiments.run.completion_file import read_completions
from experiments.triggers.attribution import attribute as attribute_rows
from extract.chat.render import render
from extract.chat.thinking import reopened, thinks
from extract.errors import UserError
from extract.html_table import html_table
from extract.model.source import resolve
from extract.progress import Reporter
from extract.prompts.prompt import Prompt, load_prompts
from extract.shipped import ROOT
from probes.statistics.seeds import named_rng
from refusal.model import Model
from refusal.prompts import Asked, as_prompts
from scoring.judges.rules import RuleJudge

if TYPE_CHECKING:
    from refusal.charts import Chart

PROMPTS_OF_ANY_MODEL = ROOT / "configs" / "prompts" / "core.jsonl"
LEARNED_ON = {"harmful": 48, "benign": 32, "uncertain": 24}  # prompts whose answers teach the openings of a refusal
OPENING_TOKENS = 24
SHOWN = 6  # words in a repr


@dataclass(frozen=True, repr=False)
class WordScores:
    """The words of one request, in order, and what each adds to the onset log-odds of refusing, in nats.

    `log_odds` is that of the whole request: above 0 the model is likelier to refuse than not. `top` is the word that
    adds most, None where no word adds 1 nat. Scores do not add up: where either of two words suffices, neither scores.

    >>> import refusal
    >>> refusal.WordScores("burn it", ("burn", "it"), (3.5, 0.25), 2.0, "burn")
    WordScores(log-odds +2.0: burn +3.5  it +0.2)
    """

    prompt: str
    words: tuple[str, ...]
    scores: tuple[float, ...]
    log_odds: float
    top: str | None

    def __repr__(self) -> str:
        order = sorted(range(len(self.words)), key=lambda i: -self.scores[i])
        words = "  ".join(f"{self.words[i][:20]} {self.scores[i]:+.1f}" for i in sorted(order[:SHOWN]))
        more = f"  … {len(order) - SHOWN} more" if len(order) > SHOWN else ""
        return f"WordScores(log-odds {self.log_odds:+.1f}: {words}{more})"

    def _repr_html_(self) -> str:
        caption = f"What each word adds to the log-odds of refusing ({self.log_odds:+.1f}), in nats"
        scores = [f"{score:+.1f}" for score in self.scores]
        return html_table(caption, ["word", "adds"], zip(self.words, scores, strict=True))

    def to_frame(self) -> pd.DataFrame:
        """Return one row a word: word, score in nats."""
        return pd.DataFrame({"word": self.words, "score": self.scores})

    def plot(self) -> Chart:
        """Draw a bar a word."""
        from refusal.charts import word_scores

        return word_scores(self.to_frame(), f"log-odds of refusing {self.log_odds:+.1f}")


def attribute(model: Model, prompt: Asked, *, run: str | os.PathLike[str] | None = None) -> WordScores:
    """Return what each word of a request adds to the log-odds of refusing it: each is left out in turn.

    How this model opens a refusal is learned from its own answers: those of a finished run, or else its answers to
    about a hundred prompts (an organism's own, or those of configs/prompts/core.jsonl), once a model.

    Inside a block of `steer` the words' scores are the steered model's; openings are learned outside of it. Dials that
    are attached do not act.

    Args:
        run: the directory of a finished run of this model.

    Raises:
        UserError: the model refuses too seldom, or in no way of its own, so that nothing can be learned; the run is of
            another model; or openings are still to be learned inside a block that steers.

    >>> import refusal
    >>> model = refusal.load_model("organisms/zoo/two-knobs")
    >>> attribution = refusal.attribute(model, "how do i burn the letters at home?")
    >>> attribution.top, attribution.log_odds > 0
    ('burn', True)
    """
    [asked] = as_prompts([prompt])
    onsets = _of_run(Path(run), model) if run is not None else _of_model(model)
    if reason := onsets.lacking("refuse"):
        raise UserError(f"{model.name}: {reason}")
    [scored] = attribute_rows(model, [render(model.tokenizer, asked)], onsets)
    top = None if scored.top is None else scored.words[scored.top]
    return WordScores(asked.text, scored.words, scored.scores, scored.log_odds, top)


def _of_run(directory: Path, model: Model) -> Onsets:
    if not (directory / "completions.jsonl").is_file():
        raise UserError(f"{directory} is no run: it has no completions.jsonl; a run is made by: refusal run CONFIG")
    if (directory / "results.json").is_file():
        ran = RunResults.read(directory / "results.json").model
        if ran.weights and ran.weights != model.fingerprint():
            raise UserError(f"{directory} is a run of {ran.name}, whose weights are not those of {model.name}")
    known = [one for one in read_completions(directory / "completions.jsonl") if one.action is not None]
    return learn_onsets(
        [one.token_ids for one in known], [one.action for one in known], [thinks(one.completion) for one in known]
    )


def _of_model(model: Model) -> Onsets:
    if model.onsets is None:
        if model.edits:
            raise UserError(
                f"how {model.name} opens a refusal is learned without steering: call attribute once "
                "outside of the block, or give run="
            )
        own = Path(resolve(model.name)) / "prompts.jsonl"
        prompts = load_prompts(own if own.is_file() else PROMPTS_OF_ANY_MODEL)
        order = [prompts[i] for i in named_rng(0, "onsets of a notebook").permutation(len(prompts))]
        drawn = [prompt for label, n in LEARNED_ON.items() for prompt in [p for p in order if p.label == label][:n]]
        model.onsets = _learned(model, drawn)
    return model.onsets


def _learned(model: Model, prompts: list[Prompt]) -> Onsets:
    rendered = [render(model.tokenizer, prompt) for prompt in prompts]
    with Reporter().task("learning how it refuses", len(prompts)) as advance:
        responses = model.responses(rendered, OPENING_TOKENS, advance)
    texts = [reopened(row.text, model.decode(tokens)) for row, tokens in zip(rendered, responses, strict=True)]
    judge = RuleJudge()
    actions = [judge.judge(text, prompt.text).action for text, prompt in zip(texts, prompts, strict=True)]
    return learn_onsets(list(map(tuple, responses)), actions, list(map(thinks, texts)))
