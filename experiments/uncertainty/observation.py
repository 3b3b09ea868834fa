"""Observations: the greedy completion and several samples for each question, with every uncertainty measure.

The *verbalised* measures (hedging, thinking) come from the greedy completion, which is what a user gets; the
*statistical* ones (entropies, agreement, log-probability) come from the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from experiments.responses.loaded_run import LoadedRun
from experiments.responses.samples import Sampler
from experiments.run.completion_file import Completion, is_right, read_completions
from experiments.run.config import UncertaintyConfig
from experiments.uncertainty.meaning import JudgedAnswers, MeaningClusterer, number_clusters
from experiments.uncertainty.measures import discrete_entropy, hedging, thinking_tokens, weighted_entropy
from extract.model.decoding import SampledResponse
from extract.prompts.prompt import Prompt
from scoring.actions import ANSWERED
from scoring.fields import states
from scoring.judges.rules import RuleJudge


@dataclass(frozen=True)
class Sample:
    """One sampled answer."""

    text: str
    action: str | None  # by the rule judge
    right: bool | None  # states the known answer; None where there is none
    cluster: int  # its cluster of meaning among the samples of its question
    tokens: int
    log_probability: float  # nats, of the whole sequence under the plain model
    ended: bool  # False where it was cut at max_new_tokens


@dataclass(frozen=True)
class Observation:
    """One question with its completion, its samples and its measures."""

    id: str
    label: str
    completion: str
    action: str | None  # by the run's judge
    correct: bool | None  # states the known answer; None where there is none
    entropy: float  # nats, over meanings, by counts
    weighted_entropy: float  # nats, over meanings, by likelihood
    agreement: float  # share of the samples with the meaning of the completion
    log_probability: float  # nats, of the whole sequence, mean over samples
    log_probability_per_token: float  # nats, mean over the tokens of a sample, then over samples
    hedging: float | None  # 0 to 1; None where the completion cannot be judged
    thinking_tokens: int
    samples: tuple[Sample, ...]

    def share(self, *actions: str) -> float:
        """Return the share of samples with one of these actions."""
        return float(np.mean([sample.action in actions for sample in self.samples]))

    @property
    def row(self) -> dict[str, object]:
        """The line of uncertainty.jsonl."""
        counts = np.unique([sample.cluster for sample in self.samples], return_counts=True)[1].tolist()
        return asdict(self) | {"clusters": counts}


def questions(prompts: Sequence[Prompt]) -> list[int]:
    """Return the rows of knowledge questions: benign prompts with a known answer, and uncertain ones."""
    asks = (p.label == "uncertain" or (p.label == "benign" and p.answer is not None) for p in prompts)
    return [row for row, is_one in enumerate(asks) if is_one]


def observe_answers(
    loaded: LoadedRun, rows: Sequence[int], settings: UncertaintyConfig, meanings: MeaningClusterer
) -> list[Observation]:
    """Sample answers to the given prompts and measure them; completions.jsonl must exist."""
    sampler = Sampler(loaded.completer, loaded.config.seed, settings.temperature, settings.top_p)
    with loaded.reporter.task("sampled answers", len(rows) * settings.samples) as advance:
        drawn = sampler.sample(rows, settings.samples, advance)
    completions, judge = read_completions(loaded.file("completions.jsonl")), RuleJudge()
    texts = [tuple(loaded.model.decode(one.token_ids) for one in of_row) for of_row in drawn]
    asked = [
        _judged(judge, loaded.prompts[row].text, (completions[row].completion, *samples))
        for row, samples in zip(rows, texts, strict=True)
    ]
    observations = []
    for row, one, of_row, clusters in zip(rows, asked, drawn, meanings.clusters(asked), strict=True):
        hedged = hedging(judge, completions[row].completion, loaded.prompts[row].text)
        thought = thinking_tokens(_with_special_tokens(loaded), loaded.rendered[row].text, completions[row].token_ids)
        observations.append(_observation(loaded.prompts[row], completions[row], one, of_row, clusters, hedged, thought))
    return observations


def _judged(judge: RuleJudge, question: str, texts: tuple[str, ...]) -> JudgedAnswers:
    did = {text: judge.judge(text, question).action for text in set(texts)}
    return JudgedAnswers(question, texts, tuple(did[text] for text in texts))


def _with_special_tokens(loaded: LoadedRun) -> Callable[[Sequence[int]], str]:
    return lambda tokens: str(loaded.model.tokenizer.decode(list(tokens), skip_special_tokens=False))


def _observation(
    prompt: Prompt,
    completion: Completion,
    answers: JudgedAnswers,
    drawn: Sequence[SampledResponse],
    clusters: Sequence[int],
    hedged: float,
    thought: int,
) -> Observation:
    """Return the measures of one question; the first of `answers` and `clusters` is the greedy completion."""
    of_samples = number_clusters([str(cluster) for cluster in clusters[1:]])
    log_probs = [one.log_prob for one in drawn]
    samples = tuple(
        Sample(
            text,
            action,
            None if prompt.answer is None else action in ANSWERED and states(text, prompt.answer),
            cluster,
            len(one.token_ids),
            one.log_prob,
            one.ended,
        )
        for text, action, cluster, one in zip(answers.texts[1:], answers.actions[1:], of_samples, drawn, strict=True)
    )
    return Observation(
        id=prompt.id,
        label=prompt.label,
        completion=completion.completion,
        action=completion.action,
        correct=None if prompt.answer is None else is_right(completion, prompt),
        entropy=discrete_entropy(of_samples),
        weighted_entropy=weighted_entropy(of_samples, log_probs, [one.token_ids for one in drawn]),
        agreement=float(np.mean(np.asarray(clusters[1:]) == clusters[0])),
        log_probability=float(np.mean(log_probs)),
        log_probability_per_token=float(np.mean([one.log_prob / max(1, len(one.log_probs)) for one in drawn])),
        hedging=hedged if np.isfinite(hedged) else None,
        thinking_tokens=thought,
        samples=samples,
    )
