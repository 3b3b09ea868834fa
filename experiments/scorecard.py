"""`refusal score`: what any model's completions did, from a file; no model weights and no torch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.judge import RuleJudge
from experiments.scoring import joint_rates, rates_record
from extract.errors import UserError
from extract.prompts import LABELS
from extract.rows import read_rows


def score_file(path: Path, out: Path) -> dict[str, Any]:
    """Write scored.jsonl (`id, action, evidence`) and scorecard.json; return the scorecard.

    Raises:
        UserError: the file cannot be read, or a row lacks a field; names the line.
    """
    rows = list(_rows(path))
    judge = RuleJudge()
    verdicts = [judge.judge(row["completion"], row.get("text")) for row in rows]
    labels = [row.get("label") for row in rows]
    labelled = [i for i, label in enumerate(labels) if label in LABELS]
    actions: list[str | None] = [verdict.action for verdict in verdicts]
    card = {
        "n": len(rows),
        "actions": dict(Counter(action or "unjudged" for action in actions).most_common()),
        "rates": _rates(rows, labelled, actions) if labelled else None,
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"id": row["id"], "action": verdict.action, "evidence": verdict.evidence}, ensure_ascii=False)
            for row, verdict in zip(rows, verdicts, strict=True)
        ]
        _write(out / "scored.jsonl", "\n".join(lines) + "\n")
        _write(out / "scorecard.json", json.dumps(card, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another with --out") from None
    return card


def _rates(rows: list[dict[str, Any]], labelled: list[int], actions: list[str | None]) -> dict[str, object]:
    named = [str(rows[i].get("pair") or f"row {i}") for i in labelled]
    _, groups = np.unique(named, return_inverse=True)
    return rates_record(joint_rates([rows[i]["label"] for i in labelled], [actions[i] for i in labelled], groups))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line, row in read_rows(path, "completions"):
        missing = [field for field in ("id", "completion") if row.get(field) is None]
        if missing:
            raise UserError(f"{path}, line {line}: field '{missing[0]}' is missing")
        label = row.get("label")
        if label not in (None, "", *LABELS):
            raise UserError(f"{path}, line {line}: field 'label' is {label!r}; expected one of {', '.join(LABELS)}")
        yield row | {"completion": str(row["completion"])}


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
