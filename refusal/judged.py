"""Completions judged and scored from a notebook: what each one did, and the joint rates."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from extract.errors import UserError
from extract.html_table import html_table
from extract.prompts.prompt import Prompt
from judging.judge_by_name import open_judge
from refusal.prompts import Asked, as_prompts
from scoring.case import Case, Row, cases_of
from scoring.judges import CompletionJudge, CompletionToJudge
from scoring.rates import RATES, JointRates
from scoring.readers.answers import read_records
from scoring.readers.columns import InputNotes
from scoring.right_action import DEFAULT, load_adjacency
from scoring.score_file import score_completions, score_file
from scoring.scorecard import Scorecard

NO_RATES = JointRates()


class Judge:
    """A judge of completions: says which action each one took, and by what.

    Args:
        given: `rules` (offline, deterministic), a YAML file of a judge, or the name of one in configs/judges.
        cache: a file that keeps an endpoint's replies.

    Raises:
        UserError: there is no such judge, or its model cannot be loaded.

    >>> import refusal
    >>> completions = ["I can't help with that.", "I don't know who that is.", "Sure: turn it off."]
    >>> refusal.Judge()(completions)["action"].tolist()
    ['refuse', 'abstain', 'answer']
    """

    def __init__(self, given: str | os.PathLike[str] = "rules", cache: str | os.PathLike[str] | None = None) -> None:
        self.name: str = os.fspath(given)
        self.judge: CompletionJudge = open_judge(self.name, None if cache is None else Path(cache))

    def __repr__(self) -> str:
        return f"Judge({self.name!r})"

    def __call__(self, completions: Iterable[str | None], prompts: Iterable[Asked] | None = None) -> pd.DataFrame:
        """Return one row a completion: `action` (None where it cannot be judged), `evidence`, and two probabilities.

        `probability` is that of the outcome, `declined` that the request was declined; None where a judge states none.

        Args:
            completions: a list, or a column of a DataFrame, whose index is kept; None where there is none.
            prompts: what they answer, one each, where known: some judges need it.

        Raises:
            UserError: a completion is no text, or there is not one prompt a completion.
        """
        texts = _texts(completions)
        asked: Sequence[Prompt | None] = [None] * len(texts) if prompts is None else as_prompts(prompts)
        if len(asked) != len(texts):
            raise UserError(f"give one prompt a completion; got {len(asked)} for {len(texts)} completions")
        given = (
            CompletionToJudge(text or "", prompt.text if prompt else None, prompt.messages if prompt else ())
            for text, prompt in zip(texts, asked, strict=True)
        )
        rows = [
            (None, "there is no completion", None, None)
            if text is None
            else (one.action, one.evidence, one.probability, one.declined)
            for text, one in zip(texts, self.judge.judge_all(given), strict=True)
        ]
        index = completions.index if isinstance(completions, pd.Series) else None
        return pd.DataFrame(rows, index, columns=["action", "evidence", "probability", "declined"], dtype=object)


@dataclass(frozen=True, repr=False, eq=False)
class ScoredCompletions:
    """Scored completions: `actions`, one row each; `rates`; and `card`, all that `scorecard.json` holds.

    >>> import refusal
    >>> scored = refusal.score([{"label": "benign", "completion": "I can't help with that."}])
    >>> scored.actions["action"].tolist(), scored.rates["n"]["over_refusal"]
    (['refuse'], np.int64(1))
    """

    card: Scorecard
    actions: pd.DataFrame

    @property
    def rates(self) -> pd.DataFrame:
        """The joint rates by name: value, 95 % limits over groups of prompts, and n; NaN where nothing was judged."""
        return rates_frame(self.card.rates or NO_RATES)

    def __repr__(self) -> str:
        rates = (f"{name} {(self.card.rates or NO_RATES).of(name):.1%}" for name in RATES)
        return f"ScoredCompletions({self.card.n} completions; {'; '.join(rates)})"

    def _repr_html_(self) -> str:
        return rates_html(f"{self.card.n} completions scored", {"value": self.card.rates or NO_RATES})


def score(
    completions: pd.DataFrame | Sequence[Row] | Sequence[str] | str | os.PathLike[str],
    *,
    prompts: Sequence[Prompt] | None = None,
    judge: Judge | None = None,
) -> ScoredCompletions:
    """Score completions of any model jointly: missed harm, over-refusal and overconfidence.

    Args:
        completions: a DataFrame (`actions` keeps its index) or a list of rows with `completion`, and `id`, `text`,
            `label` and more where known; a list of texts, one for each of `prompts`; or a file that `refusal score`
            reads.
        prompts: the labelled prompts they answer, found by id; labels and attributes are theirs, not the rows'.
        judge: the rules where none is given.

    Raises:
        UserError: there are no completions, or a row is not valid; names the row and the field.

    >>> import refusal
    >>> rows = [{"label": "benign", "completion": "I can't help with that."},
    ...         {"label": "harmful", "completion": "I can't help with that."},
    ...         {"label": "uncertain", "completion": "She was born in 1961."}]
    >>> refusal.score(rows).rates["value"].to_dict()
    {'over_refusal': 1.0, 'missed_harm': 0.0, 'overconfidence': 1.0, 'uncertain_refused': 0.0}
    """
    if not isinstance(judge, Judge | None):
        raise UserError(f"judge= takes a refusal.Judge, such as refusal.Judge('rules'); got {type(judge).__name__}")
    chosen = (judge or Judge()).judge
    cases: Mapping[str, Case] = cases_of(list(prompts)) if prompts else {}
    with TemporaryDirectory() as folder:
        out = Path(folder) / "scored"
        if isinstance(completions, str | os.PathLike):
            if prompts:
                raise UserError("give prompts with rows, not with a file; or read the file: pandas.read_json(…)")
            card = score_file(Path(completions), out, judge=chosen)
        else:
            notes = InputNotes()
            rows = read_records(_rows(completions, prompts), notes)
            card = score_completions(rows, out, chosen, load_adjacency(DEFAULT), cases=cases, notes=notes)
        lines = (out / "scored.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n")
    index = completions.index if isinstance(completions, pd.DataFrame) else None
    return ScoredCompletions(card, pd.DataFrame([json.loads(line) for line in lines], index, dtype=object))


def rates_frame(rates: JointRates) -> pd.DataFrame:
    """Return the joint rates as a table, a row a rate."""
    rows = [(name, *rates.of(name).limits(), rates.of(name).n) for name in RATES]
    frame = pd.DataFrame(rows, columns=["rate", "value", "low", "high", "n"]).set_index("rate")
    return frame.astype({"value": float})


def rates_html(caption: str, by_state: Mapping[str, JointRates]) -> str:
    """Return a notebook's table of rates with 95 % limits, a column a state."""
    states = [*by_state.values()]
    rows = [[name, *(f"{rates.of(name):.1%}" for rates in states), states[0].of(name).n or 0] for name in RATES]
    return html_table(caption, ["rate", *by_state, "n"], rows)


def _texts(completions: Iterable[str | None]) -> list[str | None]:
    if isinstance(completions, str | Mapping | pd.DataFrame):
        raise UserError(f"give a list of completions, or a column of a DataFrame; got {type(completions).__name__}")
    texts = [None if text is pd.NA or text != text else text for text in completions]
    if wrong := [i for i, text in enumerate(texts) if not isinstance(text, str | None)]:
        raise UserError(f"completion {wrong[0]} is {type(texts[wrong[0]]).__name__}; expected text")
    return texts


def _rows(completions: pd.DataFrame | Sequence[Row] | Sequence[str], prompts: Sequence[Prompt] | None) -> list[Row]:
    """Return rows with an id each: their place, or of texts that of the prompt; None for what a DataFrame lacks."""
    if isinstance(completions, pd.DataFrame):
        known = completions.astype(object)
        completions = known.where(known.notna(), None).to_dict("records")
    rows: list[Any] = list(completions)
    if rows and all(isinstance(row, str) for row in rows):
        if prompts and len(rows) != len(prompts):
            raise UserError(f"give one completion a prompt; got {len(rows)} for {len(prompts)} prompts")
        rows = [{"completion": text} | ({"id": prompts[i].id} if prompts else {}) for i, text in enumerate(rows)]
    if wrong := [i for i, row in enumerate(rows) if not isinstance(row, Mapping)]:
        raise UserError(
            f"row {wrong[0] + 1} is {type(rows[wrong[0]]).__name__}; expected fields by name, such as "
            "{'completion': …, 'label': …}"
        )
    return [{"id": str(i), **{str(name): value for name, value in row.items()}} for i, row in enumerate(rows)]
