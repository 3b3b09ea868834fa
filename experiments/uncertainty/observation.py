"""Observations: each question's greedy completion and samples, with every measure (docs/uncertainty.md).

The *verbalised* measures (hedging, thinking) are of the completion, which a user gets; the others of the samples.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import logsumexp

from experiments.responses.loaded_run import LoadedRun
from experiments.run.completion_file import Completion, is_right, read_completions
from experiments.run.config import UncertaintyConfig
from experiments.uncertainty.meaning import ExactClusterer, JudgedAnswers, number_clusters
from extract.chat.thinking import CLOSING, OPENING
from extract.model.decoding import SampledResponse
from extract.prompts.prompt import Prompt
from scoring.judges.rules import RuleJudge
from scoring.judges.table import NOT_KNOWING
from scoring.judges.visible_text import visible_text
from scoring.known_answer import is_right as gives_known_answer


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
    loaded: LoadedRun, rows: Sequence[int], settings: UncertaintyConfig, meanings: ExactClusterer
) -> list[Observation]:
    """Sample answers to the given prompts and measure them; completions.jsonl must exist."""
    seed, temperature, top_p = loaded.config.seed, settings.temperature, settings.top_p
    with loaded.reporter.task("sampled answers", len(rows) * settings.samples) as advance:
        drawn = loaded.completer.sample(
            rows, settings.samples, seed=seed, temperature=temperature, top_p=top_p, advance=advance
        )
    completions, judge, asked = read_completions(loaded.file("completions.jsonl")), RuleJudge(), list[JudgedAnswers]()
    for row, of_row in zip(rows, drawn, strict=True):
        texts = (completions[row].completion, *(loaded.model.decode(one.token_ids) for one in of_row))
        question = loaded.prompts[row].text
        did = {text: judge.judge(text, question).action for text in set(texts)}
        asked.append(JudgedAnswers(question, texts, tuple(did[text] for text in texts)))

    return [
        _observation(loaded, row, completions[row], judge, answers, of_row, clusters)
        for row, answers, of_row, clusters in zip(rows, asked, drawn, meanings.clusters(asked), strict=True)
    ]


def _observation(
    loaded: LoadedRun,
    row: int,
    completion: Completion,
    judge: RuleJudge,
    answers: JudgedAnswers,
    drawn: Sequence[SampledResponse],
    clusters: Sequence[int],
) -> Observation:
    """Return the measures of one question; the first of `answers` and `clusters` is the greedy completion."""
    prompt, hedged = loaded.prompts[row], hedging(judge, completion.completion, answers.question)

    def decode(tokens: Sequence[int]) -> str:
        return str(loaded.model.tokenizer.decode(list(tokens), skip_special_tokens=False))

    of_samples = number_clusters([str(cluster) for cluster in clusters[1:]])
    log_probs = [one.log_prob for one in drawn]
    judged = zip(answers.texts[1:], answers.actions[1:], of_samples, drawn, strict=True)
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
        thinking_tokens=thinking_tokens(decode, loaded.rendered[row].text, completion.token_ids),
        samples=tuple(
            Sample(
                text=text,
                action=action,
                right=None if prompt.answer is None else gives_known_answer(action, text, prompt.answer, prompt.text),
                cluster=cluster,
                tokens=len(one.token_ids),
                log_probability=one.log_prob,
                ended=one.ended,
            )
            for text, action, cluster, one in judged
        ),
    )


def discrete_entropy(clusters: Sequence[int]) -> float:
    """Return the entropy of the shares of samples in each cluster (Farquhar et al. 2024, Nature 630, "discrete").

    Of K samples it lies between 0 and ln K, and on average below the true entropy, by about (meanings - 1) / (2 K).
    """
    shares = np.unique(np.asarray(clusters), return_counts=True)[1] / len(clusters)
    return _entropy(shares)


def weighted_entropy(clusters: Sequence[int], log_probs: Sequence[float], sequences: Sequence[Hashable]) -> float:
    """Return the entropy of clusters weighted by likelihood: p(c) is the sum over its sequences s of p(s), normalised.

    Each distinct sequence counts once, however often it was drawn: counting draws too would weight by p(s) squared
    (arXiv 2302.09664, equations 2 and 4).
    """
    once = {sequence: i for i, sequence in reversed(list(enumerate(sequences)))}
    index = sorted(once.values())
    of, nats = np.asarray(clusters)[index], np.asarray(log_probs, dtype=float)[index]
    total = float(logsumexp(nats))
    return _entropy(np.exp([float(logsumexp(nats[of == cluster])) - total for cluster in np.unique(of)]))


def _entropy(shares: np.ndarray) -> float:
    return float(max(0.0, -(shares * np.log(shares)).sum()))


def entropy_threshold(entropies: Sequence[float]) -> float | None:
    """Return the threshold above which an entropy is high, in nats; None where all entropies are equal.

    It minimises the squared error within the two groups (semantic entropy probes, arXiv 2406.15927, section 4), midway
    between neighbouring values: low and high are relative to the given questions.
    """
    values, counts = np.unique(np.asarray(entropies, dtype=float).round(12), return_counts=True)
    if len(values) < 2:
        return None
    n, total = counts.cumsum(), (values * counts).cumsum()
    # The within-group sum of squares is the total minus the part explained by the two means.
    explained = total**2 / n + np.append((total[-1] - total[:-1]) ** 2 / (n[-1] - n[:-1]), 0.0)
    best = int(np.argmax(explained[:-1]))
    return float((values[best] + values[best + 1]) / 2)


HEDGED = 0.5  # score of an answer whose every clause is hedged; below that of an abstention
OF_RESPONSIBILITY = frozenset({"general information", "disclaimer"})  # hedges that do not concern knowledge
UNSURE = NOT_KNOWING | {"limit"}
ASIDE = frozenset({"courtesy", "frame", "reread", "redirect", "support"})  # clauses without content


def hedging(judge: RuleJudge, completion: str, prompt: str) -> float:
    """Score the verbalised uncertainty of a completion; NaN where the judge cannot judge it.

    It is 1 if it abstains for lack of knowledge, and 0 if it refuses, which does not concern knowledge. Otherwise it is
    half the share of its clauses with content that hedge ("I think", "I am not sure when"), without disclaimers of
    responsibility. Only the opening is read, as by the judge (the first 11 clauses). An AUROC uses only the order.
    """
    action = judge.judge(completion, prompt).action
    if action is None:
        return float("nan")
    if action in ("abstain", "refuse"):
        return float(action == "abstain")
    clauses = judge.reader.read(visible_text(completion, prompt) or "", judge.reader.asked(prompt))
    content = [clause for clause in clauses if clause.kind not in ASIDE]
    unsure = [clause for clause in content if clause.kind in UNSURE or _hedges(judge, clause.text)]
    return HEDGED * len(unsure) / len(content) if content else 0.0


def _hedges(judge: RuleJudge, clause: str) -> bool:
    """Return whether a clause holds a hedge, even if the judge classifies the clause otherwise."""
    hedges = (rule for kind, rules in judge.table.rules if kind == "hedge" for rule in rules)
    patterns = (rule.pattern for rule in hedges if rule.name not in OF_RESPONSIBILITY)
    return any(pattern is not None and pattern.search(clause) is not None for pattern in patterns)


def thinking_tokens(decode: Callable[[Sequence[int]], str], prompt: str, response: Sequence[int]) -> int:
    """Count the tokens between <think> and </think>, without the marks; 0 where there is no thinking.

    A block opened by the template (the prompt, as the model read it, ends within it) counts from the first token of the
    response; a block that is not closed counts to its last token. Decoding includes special tokens.
    """
    text = decode(response)
    opened, closed = OPENING.search(text), CLOSING.search(text)
    within = len(OPENING.findall(prompt)) > len(CLOSING.findall(prompt))
    if opened is None and not within:
        return 0

    def first(n_characters: int) -> int:
        return bisect_left(range(len(response)), n_characters, key=lambda n: len(decode(response[:n])))

    start = 0 if within or opened is None else first(opened.end())
    return max(0, (len(response) if closed is None else first(closed.start() + 1) - 1) - start)
