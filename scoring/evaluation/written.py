"""The files of an evaluation: what was asked of whom, the prompts, the completions, and a summary to paste."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from extract.atomic_write import make_folder, write_jsonl
from extract.errors import UserError
from extract.prompts.prompt import Prompt, prompt_row
from extract.prompts.rows import Row
from extract.record import Record
from extract.table import Table, markdown
from scoring.evaluation.asking import KeptAnswers
from scoring.judges.chat_endpoint import Reply
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


def begin(out: Path, evaluation: Evaluation) -> None:
    """Write evaluation.json before anything is asked; a directory that holds another evaluation is a UserError."""
    path, asked = out / RECORD, {"target", "base_url", "suite", "prompts", "settings", "sources"}
    if path.is_file():
        earlier = Evaluation.read(path)
        if evaluation.model_dump(include=asked) != earlier.model_dump(include=asked):
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
    tokens: tuple[list[int | None], list[int | None]] = [], []  # of each answer: read, written

    def completions() -> Iterator[Row]:
        for prompt in prompts:
            if (answer := answers.get(prompt)) is not None:
                tokens[0].append(answer.input_tokens)
                tokens[1].append(answer.output_tokens)
            yield completion_row(prompt.id, answer)

    write_jsonl(out / COMPLETIONS, completions())
    n_input, n_output = (None if not of or None in of else sum(n or 0 for n in of) for of in tokens)
    cost = None
    if None not in (*prices, n_input, n_output):
        cost = sum((price or 0) * (n or 0) / 1e6 for price, n in zip(prices, (n_input, n_output), strict=True))
    counts = {"answered": len(tokens[0]), "failed": dict(sorted(failed.items()))}
    counts |= {"input_tokens": n_input, "output_tokens": n_output, "cost": cost}
    done = evaluation.model_copy(update=counts)
    done.write(out / RECORD)
    return done


def summary(evaluation: Evaluation, card: Scorecard) -> str:
    """Return the joint rates as Markdown, for a pull request or a log of CI."""
    at = f" at {evaluation.base_url}" if evaluation.base_url else ""
    estimates = [] if card.rates is None else [(text, card.rates.of(key), ".1%") for key, text in RATE_MEANING.items()]
    estimates += [*right_action_estimates(card.right_action), *known_answer_estimates(card)]
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
    if answer is None:
        return {"id": identifier, "completion": None}
    if answer.by == "field":
        return {"id": identifier, "completion": None, "refusal": answer.text}
    row: Row = {"id": identifier, "completion": answer.text}
    ended = {"finish_reason": "content_filter"} if answer.by == "filter" else {}
    return row | ended | ({"cut_off": True} if answer.cut_off else {})
