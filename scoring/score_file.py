"""`refusal score`: scores a file of any model's completions, without model weights or torch.

Completions are streamed: each is read, judged, measured, written, and added to a table on disk, counted at the end.
"""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from extract.atomic_write import atomic_file, make_folder
from extract.chat.thinking import split_thinking, thinks
from extract.errors import UserError
from extract.progress import Advance, Reporter, no_progress
from extract.prompts.rows import is_missing, place, read_rows
from extract.prompts.sources import PromptsConfig, read_prompts
from extract.run_directory import file_of_run
from scoring.abstaining import split_confidence
from scoring.case import Case, Row, case_of_row, cases_of, identifier_of, sample_of, to_text
from scoring.fields import score_fields
from scoring.judges import CompletionJudge, CompletionToJudge, Judgement
from scoring.judges.rules import RuleJudge
from scoring.judges.structured_refusal import refused
from scoring.labels.corrected import corrected_rates, error_bands
from scoring.labels.label_file import Label, read_labels
from scoring.ledger import Entry, Ledger, workspace
from scoring.rates import RATES
from scoring.readers.answers import read_answers
from scoring.readers.columns import InputNotes, held_until, read_column_map
from scoring.right_action import DEFAULT, Adjacency, load_adjacency
from scoring.scorecard import Scorecard, delivery_record, scorecard
from scoring.scored_file import cases_of_run, scored_files

if TYPE_CHECKING:
    from scoring.judges.endpoint import EndpointJudge  # loads openai

SILENT, NO_CASES = Reporter(quiet=True), dict[str, Case]()
WRITTEN = ("scored.jsonl", "scored.parquet", "scorecard.json")


def score_file(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    judge: CompletionJudge | None = None,
    delivery: EndpointJudge | None = None,
    prompts: Path | None = None,
    dataset: str | None = None,
    columns: Path | None = None,
    mapped: Sequence[str] = (),
    encoding: str | None = None,
    adjacency: Path | None = None,
    labels: Path | None = None,
    parquet: bool = False,
    reporter: Reporter = SILENT,
) -> Scorecard:
    """Score a file of completions; see `score_completions`.

    Args:
        path: the file; of a run directory, its completions.jsonl with the run's own prompts if none are given.
        judge: decides the actions; by default the rule judge.
        delivery: says what answers to harmful prompts deliver; by default this is not asked.
        prompts, dataset: the prompts of the completions: a file; a public set by name (`prompts`: its local copy).
        labels: actions that people saw in some of the completions, drawn at random; the rates are corrected by them.
        columns, mapped: maps the file's columns to fields: a YAML file; `field=column` each.
    """
    of_run = Path(path).is_dir()
    path, out = file_of_run(path, "completions.jsonl"), Path(out)
    for name in WRITTEN:
        if path.resolve() == (out / name).resolve():
            raise UserError(f"{path} would be overwritten by its own scores; choose another directory with --out")
    credits, notes = load_adjacency(adjacency or DEFAULT), InputNotes()
    column_map = read_column_map(mapped, columns)
    rows = read_answers(path, notes, column_map, encoding)
    own = of_run and prompts is None and dataset is None
    cases = cases_of_run(path) if own else _cases(prompts, dataset)
    if cases:
        rows = _of_known_prompts(path, rows, cases)
    by_hand = None if labels is None else read_labels(labels)
    judge = judge or RuleJudge()
    with reporter.task(f"scoring {path.name}", None) as advance:
        return score_completions(
            rows,
            out,
            judge,
            credits,
            cases=cases,
            delivery=delivery,
            labels=by_hand,
            parquet=parquet,
            notes=notes,
            advance=advance,
        )


def _of_known_prompts(path: Path, rows: Iterable[Row], cases: Mapping[str, Case]) -> Iterator[Row]:
    """Pass completions on; refuse a file none of whose completions is of a known prompt."""
    by_text, ids = _by_text(cases), list[str]()

    def known(row: Row) -> bool:
        if len(ids) < 2:
            ids.append(identifier_of(row))
        return identifier_of(row) in cases or str(row.get("text")).strip() in by_text

    return held_until(
        rows,
        known,
        lambda: UserError(
            f"{path}: no completion has the id or the text of a prompt (ids of completions: {', '.join(ids)} "
            f"…; of prompts: {', '.join(list(cases)[:2])} …); name the column of the ids with --map id=COLUMN, "
            "or give the prompts of these completions"
        ),
    )


def _cases(path: Path | None, dataset: str | None) -> Mapping[str, Case]:
    """Return the cases of a prompt file or a public set; a file may also hold ids and labels only."""
    if path is None and dataset is None:
        return {}
    if path is not None and dataset is None:
        first = next(iter(read_rows(path, "prompts")), (0, {"text": ""}))[1]
        if not {"text", "messages"} & first.keys():
            return _labels(path)
    given = {"path": path} if dataset is None else {"datasets": [{"name": dataset, "path": path}]}
    return cases_of(read_prompts(PromptsConfig.model_validate(given), seed=0))


def _labels(path: Path) -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for line, row in read_rows(path, "labels"):
        where = place(path, line)
        case = case_of_row({**row, "place": where})
        if case.id in cases or case.label is None:
            wrong = f"id {case.id!r} occurs twice" if case.id in cases else "field 'label' is missing"
            needed = "each row needs a unique id and a label (text and the other fields of a prompt are optional)"
            raise UserError(f"{where}: {wrong}; {needed}")
        cases[case.id] = case
    return cases


def score_completions(
    rows: Iterable[Row],
    out: Path,
    judge: CompletionJudge,
    credits: Adjacency,
    *,
    cases: Mapping[str, Case] = NO_CASES,
    delivery: EndpointJudge | None = None,
    labels: Sequence[Label] | None = None,
    parquet: bool = False,
    notes: InputNotes | None = None,
    advance: Advance = no_progress,
) -> Scorecard:
    """Write scored.jsonl and scorecard.json; return the scorecard.

    Args:
        rows: completions with `id`, `completion` (None where missing), and further fields of their prompts.
        cases: their prompts by id, if given separately; these then replace the fields in the rows.
        delivery: says what answers to harmful prompts deliver.
        labels, notes: actions that people saw in some of them; notes made while the rows were read.
    """
    notes = notes or InputNotes()
    with (
        _folder(out),
        workspace() as connection,
        atomic_file(out / "scorecard.json") as sink,  # renamed last: it marks completion
        scored_files(out, parquet=parquet) as write,
    ):
        ledger = Ledger(connection)
        entries = _entries(rows, cases, judge, notes)
        for entry in entries if delivery is None else _with_delivery(entries, delivery):
            seen, sample = ledger.add(entry)
            if seen != "new":
                notes.note(f"{seen} id", entry.case.id)
            write(replace(entry, sample=sample), seen == "repeated")
            advance(1)
        for identifier in cases:
            if not ledger.query("1", "id = ?", "LIMIT 1", (identifier,)):
                notes.note("prompt without completion", identifier)
        card = scorecard(ledger, credits).model_copy(update={"judge": judge.record(), "input": notes.record()})
        if not card.n:
            raise UserError("there are no completions to score")
        if delivery is not None:
            if card.rates is None:
                raise UserError("delivery is judged of answers to harmful prompts; label the prompts: --prompts FILE")
            card = card.model_copy(update={"delivery": delivery_record(ledger, delivery.record())})
        card = _with_judge_error(card, ledger, labels)
        sink.write((json.dumps(card.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())
    return card


def _with_judge_error(card: Scorecard, ledger: Ledger, labels: Sequence[Label] | None) -> Scorecard:
    """Return a scorecard with the rates corrected by labels, and the judge-error bands of the other rates."""
    if card.rates is None and labels is not None:
        raise UserError("labels of completions correct the rates, and rates need labelled prompts: --prompts FILE")
    if card.rates is None:
        return card
    corrected = None if labels is None else corrected_rates(ledger, labels)
    known = {name for name, own in corrected.rates.items() if own.rate.known} if corrected else set()
    bands = {n: band for n, band in error_bands(card.rates, card.judge.judge).items() if n not in known}
    return card.model_copy(update={"judge_error_band": bands} | ({"corrected": corrected} if corrected else {}))


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """Make a folder; remove it if the block fails and the folder is empty."""
    made = not path.exists()
    make_folder(path)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            if made:
                path.rmdir()
        raise


def _entries(
    rows: Iterable[Row], cases: Mapping[str, Case], judge: CompletionJudge, notes: InputNotes
) -> Iterator[Entry]:
    by_text, waiting = _by_text(cases), deque[tuple[Case, Row, str | None]]()

    def read() -> Iterator[CompletionToJudge]:
        for row in rows:
            case = _case(row, cases, by_text, notes)
            completion = cast(str | None, row.get("completion"))
            if row.get("by") is None and is_missing(completion):
                notes.note("without completion" if completion is None else "empty completion", case.id)
            waiting.append((case, row, completion))
            yield to_judge(case, None if row.get("by") else completion)

    for judgement in judge.judge_all(read()):
        case, row, completion = waiting.popleft()
        yield entry_of(case, sample_of(row), completion, refused(row) or judgement)


def entry_of(case: Case, sample: str, completion: str | None, judgement: Judgement) -> Entry:
    """Return a judged completion with its five fields; one that is missing is unjudged, whatever the judge said."""
    if completion is None:
        judgement = Judgement(None, "there is no completion")
    text, confidence = split_confidence(completion or "")
    judged = vars(judgement) | {
        "evidence": to_text(judgement.evidence),
        "fields": score_fields(case, judgement.action, text, judgement.fields),
    }
    thought = len(split_thinking(completion).thought.split()) if completion and thinks(completion) else None
    return Entry(**judged, case=case, sample=sample, completion=completion, confidence=confidence, thought=thought)


def _with_delivery(entries: Iterable[Entry], judge: EndpointJudge) -> Iterator[Entry]:
    """Yield entries; of those that count as missed harm, with what they deliver."""
    label, counts = RATES["missed_harm"]

    def asked(entry: Entry) -> CompletionToJudge | None:
        counted = entry.case.label == label and entry.action in counts
        return to_judge(entry.case, entry.completion) if counted else None

    for entry, found in judge.judge_some(entries, asked):
        evidence = f"{entry.evidence}; delivery: {found.evidence}" if found else entry.evidence
        yield replace(entry, evidence=evidence, delivered=found.delivered) if found else entry


def to_judge(case: Case, completion: str | None) -> CompletionToJudge:
    """Return what a judge reads of a completion, without the confidence that it states."""
    return CompletionToJudge(split_confidence(completion or "")[0], case.text, case.messages, case.answer)


def _by_text(cases: Mapping[str, Case]) -> dict[str, Case]:
    """Return the cases by their text; cases with the same text are left out, since the match is ambiguous."""
    asked = Counter((case.text or "").strip() for case in cases.values())
    return {text: case for case in cases.values() if (text := (case.text or "").strip()) and asked[text] == 1}


def _case(row: Row, cases: Mapping[str, Case], by_text: Mapping[str, Case], notes: InputNotes) -> Case:
    if not cases:
        case = case_of_row(row)
        if case.label is None:
            notes.note(
                "without label, so without rates (--map label=COLUMN names the column of benign, harmful, uncertain)",
                case.id,
            )
        return case
    identifier = identifier_of(row)
    own = case_of_row({"id": identifier, "text": row.get("text"), "messages": row.get("messages")})
    if identifier in cases:
        known = cases[identifier]
        if known.text is None:  # ids and labels only: the text is in the completion's row
            return replace(known, text=own.text, messages=own.messages)
        if own.text is not None and own.text.strip() != known.text.strip():
            notes.note("text differs from the prompt's", identifier)
        return known
    same = by_text.get(own.text.strip()) if own.text else None
    if same is not None:
        notes.note("found by its text, not its id", identifier)
        return same
    notes.note("unknown id", identifier)
    return own
