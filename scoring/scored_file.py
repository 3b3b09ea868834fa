"""Files of judged completions, scored.jsonl and scored.parquet: written row by row, and read to compare or to label."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import cast

from extract.atomic_write import atomic_file, atomic_path
from extract.errors import UserError
from extract.prompts.rows import is_missing, place, read_rows
from extract.prompts.sources import PromptsConfig, read_prompts
from extract.yaml_file import read_yaml
from scoring.actions import ACTIONS, Action
from scoring.case import Case, case_of_row, cases_of, identifier_of, sample_of, to_text
from scoring.fields import FIELDS
from scoring.judges.config import judge_name, name_of
from scoring.ledger import Entry, Ledger

IN_A_RUN = ("scored.jsonl", "scored.parquet", "completions.jsonl")
BATCH = 4096  # rows of Parquet written at once
# fields of the case; `acceptable` as actions joined by |
ABOUT = (
    "label right_action acceptable intent group category epistemic_kind persona trigger pair source answer text".split()
)
TEXTS = ("id", "action", "evidence", "by", "delivered", "sample", *ABOUT, "completion")
CHANCES = ("probability", "declined", "confidence")
Write = Callable[[Entry, bool], None]  # an entry, and whether it repeats an earlier one


@contextmanager
def scored_files(out: Path, *, parquet: bool = False) -> Iterator[Write]:
    """Yield a function that writes an entry to scored.jsonl; then, with `parquet`, copy that to scored.parquet."""
    with atomic_file(out / "scored.jsonl") as sink:

        def write(entry: Entry, repeated: bool) -> None:
            row = scored_row(entry, repeated=repeated)
            sink.write((json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode())
            sink.check()

        yield write
    if parquet:
        _copy_to_parquet(out / "scored.jsonl", out / "scored.parquet")


def scored_row(entry: Entry, *, repeated: bool = False) -> dict[str, object]:
    """Return an entry as a row: id, action, evidence and the five fields always, other fields if known."""
    case = entry.case
    known = {
        "by": entry.by,
        "delivered": entry.delivered,
        "sample": entry.sample or None,
        **{name: getattr(case, name) for name in ABOUT},
        "acceptable": "|".join(case.acceptable) or None,
        "completion": None if entry.completion is None else to_text(entry.completion),
        "fields": {name: entry.fields.get(name) for name in FIELDS},
        **{name: None if (chance := getattr(entry, name)) is None else round(chance, 4) for name in CHANCES},
        "thought": entry.thought,
        "repeated": repeated or None,
    }
    row = {"id": case.id, "action": entry.action, "evidence": entry.evidence}
    return row | {name: value for name, value in known.items() if value is not None}


def load_scored(path: Path, ledger: Ledger) -> tuple[Path, dict[str, int]]:
    """Load the judged completions of a run or a file; return the file, and its numbers of repeated ids by kind."""
    file = scored_path(path)
    seen = Counter(ledger.add(entry)[0] for entry in scored_entries(file))
    if not ledger.query("1", "label IS NOT NULL", "LIMIT 1"):
        raise UserError(
            f"{file} has no labelled prompts, and rates need labels; score its completions "
            "with labels: refusal score COMPLETIONS --prompts FILE"
        )
    return file, {"repeated": seen["repeated"], "conflicting": seen["conflicting"]}


def scored_entries(file: Path) -> Iterator[Entry]:
    """Yield the judged completions of a file, without rows that repeat an earlier one."""
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
        row = {**row, "place": where}
        case = None
        if is_missing(row.get("label")):
            cases = cases_of_run(file) if cases is None else cases
            case = cases.get(identifier_of(row))
        evidence, completion = to_text(row.get("evidence") or ""), row.get("completion")
        yield Entry(
            _action(row["action"], where),
            evidence,
            case=case or case_of_row(row),
            sample=sample_of(row),
            completion=completion if isinstance(completion, str) else None,
        )


def scored_path(path: Path) -> Path:
    """Return the file of judged completions of a run or a directory of scores."""
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


def judge_of(file: Path) -> str | None:
    """Return the name of the judge of a scored file, by the scorecard or the run's configuration next to it."""
    if file.name.startswith("scored."):
        with suppress(OSError, ValueError, LookupError, TypeError):
            judge = json.loads((file.parent / "scorecard.json").read_text(encoding="utf-8"))["judge"]
            return judge_name(judge["judge"], judge.get("model"))
        return None
    judge = judge_of_run(file.parent)
    return None if judge is None else name_of(judge)


def judge_of_run(directory: Path) -> str | None:
    """Return the judge that a run's configuration names; None where a directory holds no run."""
    with suppress(UserError, LookupError):
        return str(read_yaml(directory / "config.yaml", "configuration")["judge"])
    return None


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


def _action(value: object, where: str) -> Action | None:
    if (empty := is_missing(value) and not (isinstance(value, str) and value)) or value in ACTIONS:
        return None if empty else cast(Action, value)
    raise UserError(
        f"{where}: field 'action' is {value!r}; expected one of {', '.join(ACTIONS)}, or empty where it could not be "
        "judged"
    )


def _copy_to_parquet(scored: Path, final: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    fields = pyarrow.struct([(name, pyarrow.float64()) for name in FIELDS])
    columns = [(name, pyarrow.string()) for name in TEXTS] + [("fields", fields)]
    columns += [(name, pyarrow.float64()) for name in CHANCES]
    columns += [("thought", pyarrow.int64()), ("repeated", pyarrow.bool_())]
    schema = pyarrow.schema(columns)
    with (
        scored.open("rb") as lines,
        atomic_path(final) as partial,
        pyarrow.parquet.ParquetWriter(partial, schema) as writer,
    ):
        rows = map(json.loads, lines)
        while batch := list(islice(rows, BATCH)):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema))
