"""Asks a model of this machine or behind an endpoint, and writes the files of an evaluation.

One that was killed asks only for the rest.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from extract.atomic_write import make_folder, write_jsonl
from extract.errors import UserError
from extract.keyed_file import KeyedFile, content_key
from extract.progress import Advance
from extract.prompts.groups import groups_of
from extract.prompts.prompt import Prompt, prompt_row
from extract.prompts.rows import Row
from extract.record import Record
from extract.table import Table, markdown
from scoring.judges.chat_endpoint import (
    FILTERED,
    ChatEndpoint,
    Reply,
    RequestFailedError,
    UnreadableError,
    concurrently,
)
from scoring.judges.config import EndpointConfig
from scoring.judges.rules import RuleJudge
from scoring.rates import JointRates, joint_rates
from scoring.scorecard import Scorecard
from scoring.wording import (
    BY_MEANING,
    RATE_MEANING,
    accommodation_estimates,
    known_answer_estimates,
    right_action_estimates,
)

RECORD, PROMPTS, COMPLETIONS, SUMMARY = "evaluation.json", "prompts.jsonl", "completions.jsonl", "summary.md"
READ_AHEAD = 2  # batches handed out for each concurrent request


@dataclass(frozen=True)
class Target:
    """Who is asked: what its answers depend on, and how it is asked."""

    name: str
    settings: dict[str, str | int | float | None]
    depends_on: Sequence[object]
    ask: Callable[[Sequence[Prompt]], Sequence[Reply] | str]  # the answers to a batch, or the kind of its failure
    batch: int = 1  # prompts
    concurrency: int = 1


class KeptAnswers:
    """A thread-safe file of answers, each on the disk before the next is asked for."""

    def __init__(self, path: Path, asked_of: Sequence[object]) -> None:
        """`asked_of`: all that an answer depends on besides the prompt: the model, the endpoint, the settings."""
        remedy = "choose another directory with --out, or delete it to ask everything again"
        self._file = KeyedFile(path, "answers", ("answer",), purpose="the answers so far", remedy=remedy)
        self._asked_of = tuple(asked_of)

    def get(self, prompt: Prompt) -> Reply | None:
        return next((Reply(**json.loads(answer)) for (answer,) in self._file.get([self._key(prompt)]).values()), None)

    def put(self, prompts: Sequence[Prompt], answers: Sequence[Reply]) -> None:
        """Keep answers; they are on the disk when this returns."""
        pairs = zip(prompts, answers, strict=True)
        self._file.put({self._key(prompt): [json.dumps(vars(answer))] for prompt, answer in pairs})

    def left(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Return the prompts without an answer; of several with the same messages, the first."""
        waiting = {self._key(prompt): prompt for prompt in reversed(prompts)}
        done = self._file.get(waiting)
        return [prompt for key, prompt in reversed(waiting.items()) if key not in done]

    def close(self) -> None:
        self._file.close()

    def _key(self, prompt: Prompt) -> str:
        return content_key(*self._asked_of, prompt.messages)


def ask_all(prompts: Sequence[Prompt], target: Target, answers: KeptAnswers, advance: Advance) -> Counter[str]:
    """Ask all prompts, keep each answer at once, and return the numbers of failed prompts by kind.

    A prompt whose request and retries failed has no answer; it is asked again when the evaluation is run again.
    """
    failed = Counter[str]()

    def ask(batch: Sequence[Prompt]) -> tuple[int, str | None]:
        replies = target.ask(batch)
        if isinstance(replies, str):  # the kind of failure
            return len(batch), replies
        answers.put(batch, replies)
        return len(batch), None

    if target.batch > 1:  # prompts of a batch have about one length
        prompts = sorted(prompts, key=lambda prompt: -len(str(prompt.messages)))
    batches = [prompts[start : start + target.batch] for start in range(0, len(prompts), target.batch)]
    alone = target.concurrency == 1  # a local model answers in this thread, where Ctrl-C reaches it
    for n, kind in map(ask, batches) if alone else concurrently(ask, batches, target.concurrency, READ_AHEAD):
        advance(n)
        if kind is not None:
            failed[kind] += n
    return failed


def rates_of(prompts: Sequence[Prompt], answers: KeptAnswers) -> JointRates:
    """Return the joint rates of some prompts' answers by the rules; prompts without an answer are unjudged."""
    judge, actions = RuleJudge(), list[str | None]()
    for prompt in prompts:
        if (reply := answers.get(prompt)) is None:
            actions.append(None)
        else:
            actions.append("refuse" if reply.by else judge.judge(reply.text, prompt.text).action)
    return joint_rates([prompt.label for prompt in prompts], actions, groups_of(prompts))


def endpoint_target(config: EndpointConfig, settings: dict[str, str | int | float | None]) -> Target:
    """Return the model behind an endpoint; a reply that cannot be read is asked for again, as often as a failed one."""
    endpoint = ChatEndpoint(config)

    def ask(batch: Sequence[Prompt]) -> Sequence[Reply] | str:
        [prompt] = batch
        for _ in range(config.retries + 1):
            try:
                reply = endpoint.reply(prompt.messages)
            except RequestFailedError as error:
                if error.kind != FILTERED:
                    return error.kind
                reply = Reply("", by="filter")
            except UnreadableError:
                continue
            return [replace(reply, text=reply.text.encode("utf-8", "replace").decode())]  # no lone surrogate is written
        return "unreadable"

    depends_on = ["endpoint", config.base_url, config.model, *settings.values()]
    return Target(config.model, settings, depends_on, ask, concurrency=config.concurrency)


class Evaluation(Record):
    """Who was asked what; evaluation.json."""

    target: str
    base_url: str | None = None  # null: a local model
    suite: str
    prompts: int
    settings: dict[str, str | int | float | None]
    answered: int = 0
    failed: dict[str, int] = {}  # requests that failed after their retries, by kind
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None  # in the currency of the prices given
    sources: dict[str, int] = {}  # prompts of each set


def begin(out: Path, evaluation: Evaluation) -> None:
    """Write evaluation.json before anything is asked; a directory that holds another evaluation is a UserError."""
    path, asked = out / RECORD, {"target", "base_url", "suite", "prompts", "settings", "sources"}
    if path.is_file():
        earlier = Evaluation.read(path)
        if evaluation.model_dump(include=asked) != earlier.model_dump(include=asked):
            other = f"of {earlier.target} on {earlier.suite} ({earlier.prompts} prompts, its own settings)"
            raise UserError(f"{out} holds another evaluation, {other}; choose another directory with --out")
    make_folder(out)
    evaluation.write(path)


def finish(
    out: Path,
    evaluation: Evaluation,
    prompts: Sequence[Prompt],
    answers: KeptAnswers,
    failed: Mapping[str, int],
    prices: tuple[float | None, float | None],
) -> Evaluation:
    """Write prompts and completions in the suite's order, and the record with its counts."""
    write_jsonl(out / PROMPTS, map(prompt_row, prompts))
    tokens: list[tuple[int | None, int | None]] = []  # of each answer: read, written

    def completions() -> Iterator[Row]:
        for prompt in prompts:
            if (answer := answers.get(prompt)) is not None:
                tokens.append((answer.input_tokens, answer.output_tokens))
            yield completion_row(prompt.id, answer)

    write_jsonl(out / COMPLETIONS, completions())
    columns = zip(*tokens, strict=True) if tokens else [[None]] * 2
    n_input, n_output = totals = [None if None in column else sum(n or 0 for n in column) for column in columns]
    cost = None
    if None not in (*prices, *totals):
        cost = sum((price or 0) * (n or 0) / 1e6 for price, n in zip(prices, totals, strict=True))
    counts = {"answered": len(tokens), "failed": dict(sorted(failed.items()))}
    counts |= {"input_tokens": n_input, "output_tokens": n_output, "cost": cost}
    done = evaluation.model_copy(update=counts)
    done.write(out / RECORD)
    return done


def summary(evaluation: Evaluation, card: Scorecard) -> str:
    """Return the joint rates as Markdown, for a pull request or a log of CI."""
    at = f" at {evaluation.base_url}" if evaluation.base_url else ""
    estimates = [] if card.rates is None else [(text, card.rates.of(key), ".1%") for key, text in RATE_MEANING.items()]
    estimates += [*right_action_estimates(card.right_action), *known_answer_estimates(card)]
    estimates += accommodation_estimates(card.accommodation) if card.accommodation else []
    rows = [
        [meaning, f"{score.estimate:{spec}}", f"{score.low:{spec}} to {score.high:{spec}}", str(score.n)]
        for meaning, score, spec in estimates
        if score.known
    ]
    failures = ", ".join(f"{n} {kind}" for kind, n in evaluation.failed.items())
    sources = ", ".join(f"{name} {n}" for name, n in evaluation.sources.items())
    refused = ", ".join(f"{n} {BY_MEANING[by]}" for by, n in card.refused_by.items())
    lines = [
        f"### {evaluation.target}{at}, suite {evaluation.suite}",
        "",
        markdown(Table("", ["", "estimate", "95 % interval", "n"], rows)),
        "",
        f"{evaluation.answered} of {evaluation.prompts} prompts answered{failures and f'; failed: {failures}'}.",
        f"Sets: {sources}. Judge: {card.judge.judge}.",
        *([f"No answer of the model's own: {refused}."] if refused else []),
    ]
    return "\n".join(lines) + "\n"


def completion_row(identifier: str, answer: Reply | None) -> Row:
    """Return an answer as a row of completions.jsonl, None where there is none; a refusal as endpoints report it."""
    if answer is None or answer.by == "field":
        return {"id": identifier, "completion": None} | ({"refusal": answer.text} if answer else {})
    row: Row = {"id": identifier, "completion": answer.text}
    ended = {"finish_reason": "content_filter"} if answer.by == "filter" else {}
    return row | ended | ({"cut_off": True} if answer.cut_off else {})
