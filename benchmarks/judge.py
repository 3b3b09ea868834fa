"""Accuracy of the default judge on labelled completions: XSTest, GPT-3.5, CoCoNot pairs, gemma-2b, and our own set.

The rules were written with GPT-4's XSTest rows and every second row of the other sets in view; the XSTest rows of
Llama-2 and guarded Mistral were held out and are reported separately. `completions/` has labelled completions written
for this project in the style of many models, by authors who had not seen the rules: `seen` was used while the rules
were written, `held_out` was not. The other sets need the labelled data (shared/data).
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.table import main
from probes.statistics.intervals import clopper_pearson
from scoring.actions import ACTIONS, DECLINED
from scoring.judges.rules import RuleJudge

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
OWN_COMPLETIONS = Path(__file__).resolve().parent / "completions"
XSTEST_LABELS = {"1": "full compliance", "2": "full refusal", "3": "partial refusal"}
LABEL_OF_ACTION = {
    "refuse": "2",
    "abstain": "2",
    "answer_safe_part": "3",
    "pivot": "3",
}  # METHODS; other actions are label 1
SEEN, HELD_OUT = ("gpt4",), ("llama2new", "mistralguard")
QUICK = 40  # rows of each set in a quick run


@dataclass(frozen=True)
class Row:
    """One labelled completion with the judge's action."""

    label: str
    action: str | None
    prompt: str = ""
    kind: str = ""
    annotators: tuple[str, str] = ("", "")  # the labels of two annotators

    @property
    def xstest_label(self) -> str:
        """The judge's action as one of XSTest's three labels."""
        return LABEL_OF_ACTION.get(self.action or "", "1")


def measure(quick: bool) -> dict[str, float]:
    """Print every comparison and return the figures."""
    if not DATA.is_dir():
        sys.exit(f"this benchmark needs the labelled data in {DATA}, which does not exist (see its README)")
    judge, step = RuleJudge(), slice(QUICK) if quick else slice(None)
    models = {model: list(_xstest(judge, model, step)) for model in (*SEEN, *HELD_OUT)}
    pooled = [row for rows in models.values() for row in rows]
    held_out = [row for model in HELD_OUT for row in models[model]]
    figures: dict[str, float] = {}
    for name, rows in {**models, "held out": held_out, "pooled": pooled}.items():
        _print_xstest(name, rows)
    figures["xstest_compliance_accuracy"] = _share([(r.label == "1") == (r.xstest_label == "1") for r in pooled])
    figures["xstest_three_class_accuracy"] = _share([r.label == r.xstest_label for r in pooled])
    figures["xstest_compliance_held_out"] = _share([(r.label == "1") == (r.xstest_label == "1") for r in held_out])
    figures["xstest_three_class_held_out"] = _share([r.label == r.xstest_label for r in held_out])
    figures["human_compliance_agreement"] = _share(
        [(a == "1") == (b == "1") for a, b in (r.annotators for r in pooled)]
    )
    figures["human_three_class_agreement"] = _share([a == b for a, b in (r.annotators for r in pooled)])
    figures |= _declines(judge, pooled, step)
    _print_coconot(judge, step)
    figures |= _own_completions(judge, step)
    figures["completions_per_s"] = _speed()
    return figures


def _xstest(judge: RuleJudge, model: str, step: slice) -> Iterator[Row]:
    with (DATA / "xstest" / f"xstest_v2_completions_{model}.csv").open(encoding="utf-8") as file:
        for row in list(csv.DictReader(file))[step]:
            action = judge.judge(row["completion"], row["prompt"]).action
            annotators = (row["annotation_1"][:1], row["annotation_2"][:1])
            yield Row(row["final_label"][0], action, row["prompt"], row["type"], annotators)


def _print_xstest(name: str, rows: Sequence[Row]) -> None:
    print(f"\nXSTest completions, {name} ({'seen' if name in SEEN else 'both' if name == 'pooled' else 'held out'})")
    names = XSTEST_LABELS
    _matrix("annotators \\ judge", list(names.values()), [(names[r.label], names[r.xstest_label]) for r in rows])
    _print_share("compliance or not", [(r.label == "1") == (r.xstest_label == "1") for r in rows])
    _print_share("three classes", [r.label == r.xstest_label for r in rows])
    _print_share("two annotators agree, three classes", [r.annotators[0] == r.annotators[1] for r in rows])


def _declines(judge: RuleJudge, xstest: Sequence[Row], step: slice) -> dict[str, float]:
    """Compare refusal with abstention among completions that are declined by both label and judge."""
    rejected, answers = list(_gpt35(judge, step)), list(_gemma(judge, step))
    print("\nGPT-3.5 responses, hand-labelled (tone): rejected, complied")
    _print_share("declined or not", [(r.label == "rejected") == (r.action in DECLINED) for r in rejected])
    print("\ngemma-2b answers to questions about entities, labelled by string match: refusal, or error and correct")
    _print_share("declined or not", [(r.label == "refusal") == (r.action in DECLINED) for r in answers])
    labelled = [("refuse", r.action) for r in rejected if r.label == "rejected"]
    labelled += [("refuse", r.action) for r in xstest if r.label == "2" and r.kind.startswith("contrast_")]
    labelled += [("abstain", r.action) for r in answers if r.label == "refusal"]
    both = [(label, action) for label, action in labelled if action in DECLINED]
    print("\nRefuse against abstain, among completions declined by both label and judge (refuse: GPT-3.5 rejections")
    print("and full refusals of XSTest's unsafe prompts; abstain: gemma-2b's refusals of questions about entities)")
    _matrix("label \\ judge", ["refuse", "abstain"], [(label, str(action)) for label, action in both])
    right = {kind: [a == kind for label, a in both if label == kind] for kind in ("refuse", "abstain")}
    for kind, hits in right.items():
        _print_share(f"{kind}, judged the same", hits)
    _print_share("both together", right["refuse"] + right["abstain"])
    return {"refuse_vs_abstain_accuracy": _share(right["refuse"] + right["abstain"]),
            "refuse_vs_abstain_balanced": float(np.mean([_share(hits) for hits in right.values()]))}  # fmt: skip


def _gpt35(judge: RuleJudge, step: slice) -> Iterator[Row]:
    for name in ("nyp", "political_figures"):
        for row in json.loads((DATA / "chatgpt-refusals" / f"{name}.json").read_text(encoding="utf-8"))[step]:
            if row["tone"] in ("rejected", "complied"):
                yield Row(row["tone"], judge.judge(row["response"], row["prompt"]).action, row["prompt"])


def _gemma(judge: RuleJudge, step: slice) -> Iterator[Row]:
    for row in json.loads((DATA / "sae-entities" / "batch_0.json").read_text(encoding="utf-8"))[step]:
        for text, label in zip(row["sampled_completions"], row["string_matching_sampled_labels"], strict=True):
            yield Row(label, judge.judge(text, row["question"]).action, row["question"])


def _print_coconot(judge: RuleJudge, step: slice) -> None:
    lines = (DATA / "coconot" / "coconot_pref.jsonl").read_text(encoding="utf-8").splitlines()[step]
    rows = [json.loads(line) for line in lines]
    print("\nCoCoNot preference pairs: the chosen response complies")
    _print_share("chosen not declined", [judge.judge(r["chosen"], r["prompt"]).action not in DECLINED for r in rows])


def _own_completions(judge: RuleJudge, step: slice) -> dict[str, float]:
    """Judge the completions written for this project in the style of many models."""
    figures = {}
    for name in ("seen", "held_out"):
        lines = (OWN_COMPLETIONS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[step]
        rows = [json.loads(line) for line in lines]
        judged = [(row, judge.judge(row["completion"], row["prompt"]).action) for row in rows]
        print(f"\nCompletions written in the style of many models, {name.replace('_', ' ')}")
        _matrix("label \\ judge", [*ACTIONS, "unjudged"], [(row["action"], str(a or "unjudged")) for row, a in judged])
        judged = [(row, action) for row, action in judged if action is not None]  # other languages are not judged
        right = [action == row["action"] or action in row["acceptable"] for row, action in judged]
        _print_share("right or acceptable action", right)
        declined = [(row["action"] in DECLINED) == (action in DECLINED) for row, action in judged]
        _print_share("declined or not", declined)
        both = [(row["action"], a) for row, a in judged if row["action"] in DECLINED and a in DECLINED]
        _print_share("refuse against abstain, both declined", [label == a for label, a in both])
        if name == "held_out":
            figures = {"written_action_held_out": _share(right), "written_declined_held_out": _share(declined)}
    return figures


def _speed() -> float:
    """Return the number of completions judged per second of processor time, over all XSTest completions."""
    texts: list[tuple[str, str]] = []
    for model in (*SEEN, *HELD_OUT):
        with (DATA / "xstest" / f"xstest_v2_completions_{model}.csv").open(encoding="utf-8") as file:
            texts += [(row["completion"], row["prompt"]) for row in csv.DictReader(file)]
    rates = []
    for _ in range(3):
        judge, start = RuleJudge(), time.process_time()
        for text, prompt in texts:
            judge.judge(text, prompt)
        rates.append(len(texts) / (time.process_time() - start))
    words = np.mean([len(text.split()) for text, _ in texts])
    print(f"\n{len(texts)} completions of {words:.0f} words on average, median of 3 rounds on one core")
    return float(np.median(rates))


def _matrix(corner: str, names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> None:
    counts = Counter(pairs)
    width = max(map(len, (*names, corner))) + 2
    print("".join(f"{name:>{width}}" for name in (corner, *names)))
    for row in names:
        if any(counts[row, column] for column in names):
            print("".join(f"{cell:>{width}}" for cell in (row, *(counts[row, column] for column in names))))


def _share(hits: Sequence[bool]) -> float:
    return float(np.mean(hits)) if hits else float("nan")


def _print_share(what: str, hits: Sequence[bool]) -> None:
    interval = clopper_pearson(sum(hits), len(hits))
    print(f"  {what:<40} {interval:.1%}, n {len(hits)}")


if __name__ == "__main__":
    main("judge", measure)
