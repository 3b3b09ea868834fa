"""Reads judged completions to compare: from a run directory, its completions file, or the files of `refusal score`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from extract.errors import UserError
from extract.prompts.groups import groups_of
from extract.prompts.prompt import Prompt
from extract.prompts.rows import place, read_rows
from extract.prompts.sources import PromptsConfig, read_prompts
from extract.yaml_file import read_yaml
from scoring.actions import ACTIONS
from scoring.case import Case, Row, case_of_prompt, case_of_row, group_names, identifier_of, sample_of, to_text
from scoring.ledger import Entry, Ledger

IN_A_RUN = ("scored.jsonl", "scored.parquet", "completions.jsonl")


@dataclass(frozen=True)
class LoadedFile:
    """A loaded file, and its numbers of repeated ids: with the same text (repeated) or another (conflicting)."""

    file: Path
    repeated: int
    conflicting: int


def load_scored(path: Path, ledger: Ledger) -> LoadedFile:
    """Load the judged completions of a run or a file into a ledger.

    Raises:
        UserError: there is no such file, or its completions are not judged or not labelled.
    """
    file = scored_path(path)
    again = {"repeated": 0, "conflicting": 0}
    for entry in scored_entries(file):
        seen, _ = ledger.add(entry)
        if seen != "new":
            again[seen] += 1
    if not ledger.query("1", "label IS NOT NULL", "LIMIT 1"):
        raise UserError(
            f"{file} has no labelled prompts, and rates need labels; score its completions "
            "with labels: refusal score COMPLETIONS --prompts FILE"
        )
    return LoadedFile(file, again["repeated"], again["conflicting"])


def scored_entries(file: Path) -> Iterator[Entry]:
    """Yield the judged completions of a file, without rows that repeat an earlier one.

    Raises:
        UserError: a row is not a judged completion; names the line.
    """
    cases: Mapping[str, Case] | None = None
    for line, row in read_rows(file, "scored completions"):
        where = place(file, line)
        if "id" not in row or "action" not in row:
            raise UserError(
                f"{where}: not a judged completion (field 'action' is missing); judge the file first: "
                f"refusal score {file}"
            )
        if row.get("repeated") in (True, "true", "True"):  # not NaN, nor a CSV's "False"
            continue
        labelled = row.get("label") not in (None, "")
        if not labelled and cases is None:
            cases = cases_of_run(file)
        yield _entry(row, where, {} if labelled else cases or {})


def cases_of(prompts: Sequence[Prompt]) -> dict[str, Case]:
    """Return the cases of labelled prompts by id; prompts linked by pair, entity or text form one group."""
    if not prompts:
        return {}
    groups = group_names([prompt.id for prompt in prompts], groups_of(prompts))
    return {prompt.id: case_of_prompt(prompt, group) for prompt, group in zip(prompts, groups, strict=True)}


def scored_path(path: Path) -> Path:
    """Return the file of judged completions of a run or a directory of scores.

    Raises:
        UserError: there is no such file.
    """
    if path.is_file():
        return path
    ran = (path / "config.yaml").is_file()  # a run's own completions come before files scored in its directory
    for name in sorted(IN_A_RUN, key=lambda name: name != "completions.jsonl") if ran else IN_A_RUN:
        if (path / name).is_file():
            return path / name
    raise UserError(
        f"{path} is neither a run directory nor a scored file; make one with: refusal run CONFIG, or "
        "refusal score COMPLETIONS --out DIR"
    )


def cases_of_run(file: Path) -> Mapping[str, Case]:
    """Return the cases of the run whose directory holds a completions file; empty if it is not in a run."""
    config = file.parent / "config.yaml"
    if not config.is_file():
        return {}
    run = read_yaml(config, "configuration")
    try:
        given, seed = PromptsConfig.model_validate(run["prompts"]), int(run["seed"])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{config} is not the configuration of a run; give the prompts with --prompts FILE") from None
    return cases_of(read_prompts(given, seed))


def _entry(row: Row, where: str, cases: Mapping[str, Case]) -> Entry:
    row = {**row, "place": where}
    case = cases.get(identifier_of(row)) or case_of_row(row)
    completion = row.get("completion")
    return Entry(
        case,
        _action(row["action"], where),
        to_text(row.get("evidence") or ""),
        sample_of(row),
        completion if isinstance(completion, str) else None,
    )


def _action(value: object, where: str) -> str | None:
    if value is None or value == "" or value != value:
        return None
    if value not in ACTIONS:
        raise UserError(
            f"{where}: field 'action' is {value!r}; expected one of {', '.join(ACTIONS)}, or empty where "
            "it could not be judged"
        )
    return str(value)
