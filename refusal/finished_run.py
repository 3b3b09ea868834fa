"""A finished run as tables: rates, verdicts, the probe grid, completions; and charts of them."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from experiments.probing.results import GridRow
from experiments.report.results import RunResults
from experiments.run.completion_file import read_completions
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from experiments.run.wording import VERDICTS, verdict_text
from extract.errors import UserError
from extract.html_table import html_table
from probes.statistics.intervals import NO_ESTIMATE
from refusal.judged import rates_frame, rates_html

if TYPE_CHECKING:
    from experiments.charts.specification import Chart

Picture = Literal["rates", "grid", "matrix"]


class Run:
    """What a finished run found, made by `load_run`; `results` is all that results.json holds, typed.

    >>> import refusal
    >>> run = refusal.load_run("runs/quickstart")
    >>> run.results.model.name, list(run.verdicts)[:2]
    ('organisms/zoo/two-knobs', ['verdict', 'basis'])
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / "results.json").is_file():
            raise UserError(f"{path} holds no results.json; a finished run is written by: refusal run CONFIG")
        self.results: RunResults = RunResults.read(path / "results.json")

    def __repr__(self) -> str:
        results = self.results
        return (
            f"Run({str(self.path)!r}, {results.model.name}, {sum(results.prompts.values())} prompts; "
            f"{results.dissociation.verdict}, {results.triggers.verdict})"
        )

    def _repr_html_(self) -> str:
        rates, name = self.results.rates, self.results.model.name
        verdicts = self.verdicts[["meaning", "reasons"]].itertuples()
        asked = html_table(f"{name}: run in {self.path}", ["question", "verdict", "reasons"], verdicts)
        states = {"before": rates.before, "with dials": rates.after}
        return asked + rates_html("Rates on test prompts, 95 % limits over independent groups", states)

    @property
    def rates(self) -> pd.DataFrame:
        """The joint rates on test prompts: a row a rate; value, 95 % limits and n, before and with the dials."""
        before, after = self.results.rates.before, self.results.rates.after
        return pd.concat({"before": rates_frame(before), "with dials": rates_frame(after)}, axis=1)

    @property
    def declines(self) -> pd.DataFrame:
        """What the plain model does with all answered prompts: a row a reason to decline (its prompts) and wording.

        Value, 95 % limits and n; `declined` is refused or abstained from. No rows of a run of an earlier version.
        """
        table = self.results.rates.by_reason
        rows = [
            (reason, wording, *share.limits(), share.n)
            for reason, of in ({} if table is None else table.shares).items()
            for wording, share in of.items()
        ]
        return pd.DataFrame(rows, columns="reason wording value low high n".split()).set_index(["reason", "wording"])

    @property
    def verdicts(self) -> pd.DataFrame:
        """The two verdicts: names, basis (by what declines are of a kind), in plain words, and the trigger share."""
        two, word = self.results.dissociation, self.results.triggers
        low, high = word.trigger_share_ci or (None, None)
        shares = {"trigger_share": word.trigger_share, "low": low, "high": high}
        columns = {
            "question": ["one refusal or two", "trigger word or intent"],
            "verdict": [two.verdict, word.verdict],
            "basis": [two.basis, "wording"],
            "meaning": [verdict_text(two.verdict, two.basis), VERDICTS[word.verdict]],
            "reasons": ["; ".join(two.reasons), word.reason or ""],
        } | {name: np.array([None, share], dtype=float) for name, share in shares.items()}
        return pd.DataFrame(columns).set_index("question")

    @property
    def unspoken(self) -> pd.DataFrame:
        """What is read of uncertain prompts and not said: a row a category, with 95 % limits and n; `all` first.

        AUROC by nested folds against their twins (`auroc`; `auroc_own`: by a probe of the category alone), against
        those that the model knows (`auroc_known`); shares `abstained`, `abstained_under_line` (NaN where no
        line was tried), `silent`, and `known` of the twins.
        """
        names = "auroc auroc_own auroc_known abstained abstained_under_line silent known".split()
        rows = {
            one.category: {
                (name, part): getattr(getattr(one, name) or NO_ESTIMATE, field)
                for name in names
                for part, field in (("value", "estimate"), ("low", "low"), ("high", "high"), ("n", "n"))
            }
            for one in self.results.unspoken.categories
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("category")

    @property
    def certificates(self) -> pd.DataFrame:
        """The certificate of each limit on calibration prompts, at the dials' thresholds: a row a rate.

        Each holds alone, with the stated confidence: `at_most` is the upper limit of the rate, `n_needed` how many
        prompts without a failure certify its limit. No rows where there are no dials.
        """
        certified = self.results.steer.certified
        columns = "rate limit certified failures n at_most confidence n_needed".split()
        rows = []
        if certified is not None:
            rows = [
                (name, one.limit, one.certified, one.failures, one.n, one.at_most, certified.confidence, one.n_needed)
                for name, one in certified.risks.items()
            ]
        return pd.DataFrame(rows, columns=columns).set_index("rate")

    @cached_property
    def grid(self) -> pd.DataFrame:
        """The probe grid: a row a contrast, layer, position and kind of probe, with the test AUROC and its limits."""
        return pd.read_parquet(self.path / "probes.parquet")

    @cached_property
    def completions(self) -> pd.DataFrame:
        """The completions: a row a prompt; `action_with_dials`, `completion_with_dials` on test prompts alone."""
        inputs = RunInputs(load_config(self.path / "config.yaml"), self.path)
        fields = ("id", "label", "category", "trigger", "text")
        frame = pd.DataFrame({name: [getattr(prompt, name) for prompt in inputs.prompts] for name in fields})
        frame.insert(1, "part", inputs.corpus.part)
        frame = frame.set_index("id")
        for name, end in (("completions.jsonl", ""), ("completions_steered.jsonl", "_with_dials")):
            read = read_completions(self.path / name) if (self.path / name).is_file() else []
            by_id = {one.id: (one.action, one.completion) for one in read}
            columns = [f"action{end}", f"completion{end}"]
            frame[columns] = pd.DataFrame([by_id.get(i, (None, None)) for i in frame.index], frame.index, columns)
        return frame.reset_index()

    def plot(self, what: Picture = "rates", contrast: str = "normative") -> Chart:
        """Draw the rates before and with the dials, a contrast's probes over layers, or the dissociation's matrix.

        Args:
            contrast: of the grid: `normative`, `epistemic` or `intent`.

        Raises:
            UserError: there is no such picture or contrast.
        """
        from experiments.dissociation.text import matrix_chart
        from experiments.probing.text import grid_figure
        from experiments.report.page.summary import rates_chart

        results = self.results
        match what:
            case "rates":
                return rates_chart(results, results.model.name)
            case "grid":
                return grid_figure(GridRow.table(self.path / "probes.parquet"), contrast)
            case "matrix":
                chart = matrix_chart(results.dissociation.matrix)
                if chart is None:
                    reasons = "; ".join(results.dissociation.reasons)
                    raise UserError(f"{self.path}: the dissociation was not tested ({reasons})")
                return chart
        raise UserError(f"no such picture: {what!r}; expected rates, grid or matrix")


def load_run(path: str | os.PathLike[str]) -> Run:
    """Open the directory of a finished run.

    Raises:
        UserError: it holds no results.json, or one that cannot be read.

    >>> import refusal
    >>> run = refusal.load_run("runs/quickstart")
    >>> run.verdicts["verdict"].tolist()
    ['double_dissociation', 'mixed']
    >>> run.rates["with dials"]["value"]["missed_harm"]
    np.float64(0.0)
    """
    return Run(Path(path))
