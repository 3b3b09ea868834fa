"""Attribution of a refusal to words: each word of a request is left out in turn (Li et al. 2016).

The score of a word is the onset log-odds of refusing the whole request less those without it, in nats. Scores do not
add up, and of two words of which either suffices each scores low.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.factors.removal import choose_requests
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import Onsets, OnsetScorer
from experiments.triggers.results import NOTABLE, AttributedRequest, FiredByTrigger, TriggerAttribution
from extract.atomic_write import write_jsonl
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.record import NotApplicable, not_applicable
from probes.statistics.intervals import group_means
from probes.statistics.means import mean_interval

WORD = re.compile(r"\w+(?:[\'\u2019-]\w+)*|[^\w\s]+")
TOKENS_AT_ONCE = 8192  # of a pass
SHOWN = 8  # examples in stages/triggers.json
MOST_PIECES = 64  # of a request; in a longer one, words that stand together are left out together


@dataclass(frozen=True)
class Attribution:
    """The words of one request's last turn, in order, and what each adds to the log-odds of refusing."""

    words: tuple[str, ...]
    scores: tuple[float, ...]  # nats, one a word
    tokens: tuple[tuple[int, ...], ...]  # token indices of each word
    log_odds: float  # of the whole request

    @property
    def top(self) -> int | None:
        """The word that speaks most for refusing; None where no single one does (two of which either suffices, say)."""
        first = int(np.argmax(self.scores)) if self.scores else None
        return first if first is not None and self.scores[first] >= NOTABLE else None


def attribute(
    model: ChatModel, rows: Sequence[Rendered], onsets: Onsets, advance: Callable[[int], None] = lambda rows: None
) -> list[Attribution]:
    """Score every word of some requests; requests of similar length share their passes."""
    words = [pieces(words_of(model, row)) for row in rows]
    variants = [
        (i, variant)
        for i, row in enumerate(rows)
        for variant in (row, *(without(row, tokens) for _, tokens in words[i]))
    ]
    length = [len(rows[i].token_ids) for i, _ in variants]  # of the whole request: its variants keep their order
    by_length = sorted(range(len(variants)), key=lambda place: (-length[place], place))
    scores: list[list[float]] = [[] for _ in rows]
    while by_length:
        n = max(1, TOKENS_AT_ONCE // length[by_length[0]])
        some, by_length = by_length[:n], by_length[n:]
        log_odds = OnsetScorer(model, [variants[place][1] for place in some], onsets).log_odds()["refuse"]
        for place, score in zip(some, log_odds, strict=True):
            scores[variants[place][0]].append(float(score))
        advance(sum(len(scores[i]) == len(words[i]) + 1 for i in {variants[place][0] for place in some}))
    return [
        Attribution(
            tuple(word for word, _ in of_row),
            tuple(whole - left for left in others),
            tuple(tokens for _, tokens in of_row),
            whole,
        )
        for of_row, (whole, *others) in zip(words, scores, strict=True)
    ]


def pieces(words: list[tuple[str, tuple[int, ...]]]) -> list[tuple[str, tuple[int, ...]]]:
    """Join words that stand together until there are no more than MOST_PIECES."""
    size = -(-len(words) // MOST_PIECES) or 1
    joined = [words[i : i + size] for i in range(0, len(words), size)]
    return [(" ".join(word for word, _ in some), tuple(t for _, tokens in some for t in tokens)) for some in joined]


def words_of(model: ChatModel, row: Rendered) -> list[tuple[str, tuple[int, ...]]]:
    """Divide the user's last turn into words, each with the tokens that touch it and no word before it.

    Words are found in the text as the template shows it; where all tokens are one word (no blanks), each is its own,
    with the tokens of one character together.
    """
    offsets = model.tokenizer(row.text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    inside = [(i, *offsets[i]) for i in row.instruction]
    start, end = inside[0][1], inside[-1][2]
    words: list[tuple[str, tuple[int, ...]]] = []
    taken: set[int] = set()
    for match in WORD.finditer(row.text, start, end):
        touching = tuple(i for i, a, b in inside if a < match.end() and match.start() < b and i not in taken)
        taken.update(touching)
        if touching:
            words.append((match.group(), touching))
    if len(words) == 1 and len(inside) > 1:
        spans = sorted({(a, b) for _, a, b in inside})
        return [(row.text[a:b], tuple(i for i, *span in inside if (a, b) == tuple(span))) for a, b in spans]
    return words


def without(row: Rendered, tokens: Sequence[int]) -> Rendered:
    """Return the prompt with some tokens left out. Its roles are those of the whole: do not read them."""
    return replace(row, token_ids=[t for i, t in enumerate(row.token_ids) if i not in tokens])


# -- a run's refused requests ------------------------------------------------------------------------------------------


def measure_attribution(loaded: LoadedRun) -> TriggerAttribution | NotApplicable:
    """Return, by label, how often the trigger is the word with the highest score; write attributions.jsonl.

    Over-refused requests come first. There are none where refusals have no onset to score, as with a model that thinks
    first.
    """
    if not loaded.config.triggers.attributed:
        return not_applicable("triggers.attributed is 0")
    corpus, onsets, most = loaded.corpus, context_onsets(loaded, "wording"), loaded.config.triggers.attributed
    refused = loaded.behaviour.did("refuse") & (not onsets.lacking("refuse"))
    asked = {"benign": corpus.requests, "harmful": corpus.harmful}
    by_label = {
        label: choose_requests(corpus, np.flatnonzero(of & refused), loaded.config.seed, most)
        for label, of in asked.items()
    }
    rows = np.concatenate(list(by_label.values())).tolist()
    requests: dict[int, AttributedRequest] = {}
    if rows:
        with loaded.reporter.task("attributing refusals to words", len(rows)) as advance:
            attributions = attribute(loaded.model, [loaded.rendered[row] for row in rows], onsets, advance)
        requests = {row: _request(loaded, row, scores) for row, scores in zip(rows, attributions, strict=True)}
    write_jsonl(loaded.file("attributions.jsonl"), (request.to_dict() for request in requests.values()))
    if not requests:
        return not_applicable(onsets.lacking("refuse") or "no request is refused")
    return TriggerAttribution(
        applicable=True,
        n=len(requests),
        by_label={label: _fired_by_trigger(loaded, requests, of.tolist()) for label, of in by_label.items()},
        examples=tuple(requests.values())[:: max(1, len(requests) // SHOWN)][:SHOWN],
    )


def _request(loaded: LoadedRun, row: int, scores: Attribution) -> AttributedRequest:
    prompt, trigger, top = loaded.prompts[row], set(loaded.rendered[row].trigger), scores.top
    fired = top is not None and bool(set(scores.tokens[top]) & trigger)
    return AttributedRequest(
        id=prompt.id,
        label=prompt.label,
        trigger=prompt.trigger,
        **vars(scores),
        top=None if top is None else scores.words[top],
        fired_by_trigger=fired if trigger else None,
    )


def _fired_by_trigger(
    loaded: LoadedRun, requests: Mapping[int, AttributedRequest], rows: Iterable[int]
) -> FiredByTrigger | None:
    own = {row: requests[row] for row in rows if requests[row].fired_by_trigger is not None}
    if not own:
        return None
    trigger, groups = {row: set(loaded.rendered[row].trigger) for row in own}, loaded.corpus.groups[list(own)]
    shares = [np.mean([bool(set(word) & trigger[row]) for word in request.tokens]) for row, request in own.items()]
    fired = group_means(np.array([request.fired_by_trigger for request in own.values()], dtype=float), groups)
    return FiredByTrigger(
        fired_by_trigger=mean_interval(fired, 0.0, 1.0),
        by_chance=float(group_means(np.array(shares, dtype=float), groups).mean()),  # words that belong to the trigger
        n=len(own),
        n_groups=len(fired),
    )
