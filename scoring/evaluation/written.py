"""The files of an evaluation: what was asked of whom, the prompts, the completions, and a summary to paste."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from extract.atomic_write import make_folder, write_jsonl
from extract.errors import UserError
from extract.prompts.prompt import Prompt, prompt_row
from extract.prompts.rows import Row
from extract.record import Record
from extract.table import Table, markdown
from scoring.evaluation.asking import Answer, KeptAnswers
from scoring.scorecard import Scorecard
from scoring.wording import BY_MEANING, RATE_MEANING, known_answer_estimates, right_action_estimates

RECORD, PROMPTS, COMPLETIONS, SUMMARY = "evaluation.json", "prompts.jsonl", "completions.jsonl", "summary.md"


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

    def same_as(self, other: Evaluation) -> bool:
        """Return whether both ask the same of the same."""
        asked = {"target", "base_url", "suite", "prompts", "settings", "sources"}
        return self.model_dump(include=asked) == other.model_dump(include=asked)


def begin(out: Path, evaluation: Evaluation) -> None:
    """Write evaluation.json before anything is asked.

    Raises:
        UserError: the directory holds another evaluation.
    """
    path = out / RECORD
    if path.is_file() and not evaluation.same_as(earlier := Evaluation.read(path)):
        raise UserError(
            f"{out} holds another evaluation, of {earlier.target} on {earlier.suite} ({earlier.prompts} "
            "prompts, its own settings); choose another directory with --out"
        )
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
    given = list[Answer]()

    def completions() -> Iterator[Row]:
        for prompt in prompts:
            answer = answers.get(prompt)
            yield completion_row(prompt.id, answer)
            if answer is not None:
                given.append(replace(answer, text=""))

    write_jsonl(out / COMPLETIONS, completions())
    tokens = {name: _total([getattr(answer, name) for answer in given]) for name in ("input_tokens", "output_tokens")}
    priced = [
        (price, n) for price, n in zip(prices, tokens.values(), strict=True) if price is not None and n is not None
    ]
    cost = sum(price * n / 1e6 for price, n in priced) if len(priced) == len(tokens) else None
    counts = {"answered": len(given), "failed": dict(sorted(failed.items())), **tokens, "cost": cost}
    done = evaluation.model_copy(update=counts)
    done.write(out / RECORD)
    return done


def summary(evaluation: Evaluation, card: Scorecard) -> str:
    """Return the joint rates as Markdown, for a pull request or a log of CI."""
    return "\n".join(_summary_lines(evaluation, card)) + "\n"


def _summary_lines(evaluation: Evaluation, card: Scorecard) -> Iterator[str]:
    at = f" at {evaluation.base_url}" if evaluation.base_url else ""
    yield f"### {evaluation.target}{at}, suite {evaluation.suite}"
    yield ""
    estimates = [] if card.rates is None else [(text, card.rates.of(key), ".1%") for key, text in RATE_MEANING.items()]
    estimates += [*right_action_estimates(card.right_action), *known_answer_estimates(card)]
    rows = [
        [meaning, f"{score.estimate:{spec}}", f"{score.low:{spec}} to {score.high:{spec}}", str(score.n)]
        for meaning, score, spec in estimates
        if score.known
    ]
    yield markdown(Table("", ["", "estimate", "95 % interval", "n"], rows))
    yield ""
    answered = f"{evaluation.answered} of {evaluation.prompts} prompts answered"
    failures = ", ".join(f"{n} {kind}" for kind, n in evaluation.failed.items())
    yield answered + (f"; failed: {failures}" if failures else "") + "."
    sources = ", ".join(f"{name} {n}" for name, n in evaluation.sources.items())
    yield f"Sets: {sources}. Judge: {card.judge.judge}."
    if card.refused_by:
        counts = ", ".join(f"{n} {BY_MEANING[by]}" for by, n in card.refused_by.items())
        yield f"No answer of the model's own: {counts}."


def completion_row(identifier: str, answer: Answer | None) -> Row:
    """Return an answer as a row of completions.jsonl, None where there is none; a refusal as endpoints report it."""
    if answer is None:
        return {"id": identifier, "completion": None}
    if answer.by == "field":
        return {"id": identifier, "completion": None, "refusal": answer.text}
    row: Row = {"id": identifier, "completion": answer.text}
    ended = {"finish_reason": "content_filter"} if answer.by == "filter" else {}
    return row | ended | ({"cut_off": True} if answer.cut_off else {})


def _total(counts: Sequence[int | None]) -> int | None:
    known = [n for n in counts if n is not None]
    return sum(known) if known and len(known) == len(counts) else None
