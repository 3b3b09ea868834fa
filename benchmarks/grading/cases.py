"""The models on which verdicts are graded: the zoo, small variants with other seeds, and two null cases."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from experiments.dissociation.verdict_rules import (
    EFFECT_KEYS,
    DissociationVerdict,
    Quantity,
    estimated_table,
    verdict_of,
)
from experiments.run.behaviour import ACTION_OF, KINDS
from experiments.run.config import RunConfig, with_value
from organisms.listing import ZOO, right_dissociation, right_triggers
from organisms.spec import Allowed, load_spec
from probes.statistics.intervals import Estimate

VARIANTS = Path(__file__).resolve().parents[1] / "variants"
POSITIVE = frozenset(get_args(DissociationVerdict)) - {"no_effect", "not_applicable", "inconclusive"}
NONE_FOUND = frozenset({"not_applicable", "no_effect", "inconclusive"})


@dataclass(frozen=True)
class Case:
    """A model directory with its prompts. `expected` is set for null cases; other models have their truth.json."""

    name: str
    model: Path
    prompts: Path
    expected: frozenset[str] | None = None  # the right verdicts of a null case
    untrained: bool = False  # an untrained model refuses nothing
    layers: tuple[int, ...] | None = None  # the planted layers alone; None: free choice of the layer


@dataclass(frozen=True)
class GradedCase:
    """The verdicts of one case and the right ones."""

    name: str
    verdict: str
    right: frozenset[str]  # allowed verdicts
    forbidden: frozenset[str]
    cosines: dict[str, float | None]  # of the fitted and the planted direction, by behaviour
    reason: str
    ranks: dict[str, tuple[int, int]] = field(default_factory=dict)  # by behaviour: found, planted; where stated
    subspace_cosine: float | None = None  # mean cosine of the principal angles to the planted span
    by_cosine: str = "-"  # simpler readings of the same run
    by_estimates: str = "-"
    triggers: str = "-"  # the verdict on trigger word or intent
    right_triggers: str = "-"
    share: float | None = None  # the planted trigger share
    share_ci: tuple[float, float] = (0.0, 1.0)

    @property
    def decided(self) -> bool:
        """Whether the verdict is allowed, and more than `inconclusive` where there is something to find."""
        return self.verdict in self.right and (self.verdict != "inconclusive" or self.right <= NONE_FOUND)

    @property
    def grade(self) -> str:
        """What is printed of the verdict."""
        return "FALSE" if self.verdict in self.forbidden else "yes" if self.decided else "open"

    @property
    def covers(self) -> bool:
        """Whether the interval of the trigger share contains the planted share."""
        return self.share is None or self.share_ci[0] <= self.share <= self.share_ci[1]


def cases(folder: Path, quick: bool) -> list[Case]:
    """Return the cases; the null cases are written into `folder`."""
    built = [
        path.parent
        for path in sorted([*ZOO.glob("*/truth.json"), *VARIANTS.glob("*/truth.json")])
        if load_spec(path.parent / "spec.yaml").categories is None
    ]  # those have a benchmark of their own
    base = next(path for path in built if path.name == ("two-knobs-s11" if quick else "two-knobs"))
    chosen = [base] if quick else built
    listed = [case for path in chosen for case in _places(path)]
    if quick:
        listed = [replace(case, prompts=thinned(case.prompts, folder / "few.jsonl")) for case in listed]
    own = next(case.prompts for case in listed if case.model == base)
    return [
        *listed,
        shuffled_labels(base, own, folder / "shuffled.jsonl"),
        random_model(base, own, folder / "random-model"),
    ]


def _places(path: Path) -> list[Case]:
    """Return a model's cases: free choice of the layer, and the planted layers alone if verdicts are stated for it."""
    free, spec = Case(path.name, path, path / "prompts.jsonl"), load_spec(path / "spec.yaml")
    if spec.verdicts is None:
        return [free]
    layers = set(spec.planted.places[0]) or {spec.planted.layer}
    return [free, replace(free, name=f"{path.name}, planted layer", layers=tuple(sorted(layers)))]


def thinned(prompts: Path, out: Path, every: int = 2) -> Path:
    """Write every second pair of a prompt file to `out`."""
    rows = [json.loads(line) for line in prompts.read_text().splitlines()]
    kept = set(list(dict.fromkeys(row["pair"] for row in rows))[::every])
    out.write_text("\n".join(json.dumps(row) for row in rows if row["pair"] in kept) + "\n")
    return out


def truth(case: Case) -> frozenset[str]:
    """Return the right verdicts. Called after the verdict is written, because it reads truth.json."""
    if case.expected is not None:
        return case.expected
    if (place := _stated(case)) is not None:
        return frozenset(place.allowed)
    variables = json.loads((case.model / "truth.json").read_text())["variables"]
    decided = [variable["decides"] for variable in variables]
    if (right := right_dissociation(decided)) is None:
        raise ValueError(f"{case.name}: no verdict is known for a model whose variables decide {decided}")
    return frozenset({right})


def false_verdicts(case: Case) -> frozenset[str]:
    """Return the verdicts that are false; also called after the verdict."""
    if (place := _stated(case)) is not None:
        return frozenset(place.forbidden)
    return (POSITIVE | {"no_effect"}) - truth(case)


def elicits(case: Case) -> bool:
    """Return whether the model declines otherwise under a system line."""
    return case.expected is None and load_spec(case.model / "spec.yaml").elicited is not None


def thinks(case: Case) -> bool:
    """Return whether the model thinks before it answers."""
    return case.expected is None and load_spec(case.model / "spec.yaml").planted.thought is not None


def _stated(case: Case) -> Allowed | None:
    """Return the verdicts that the specification states for this place, if it does."""
    if case.expected is not None or (verdicts := load_spec(case.model / "spec.yaml").verdicts) is None:
        return None
    return verdicts.free if case.layers is None else verdicts.planted


def trigger_truth(case: Case) -> tuple[str, float | None]:
    """Return the right verdict on trigger word or intent and the planted share, which shuffled labels do not change."""
    if case.untrained:
        return "not_applicable", None
    if (right := right_triggers(load_spec(case.model / "spec.yaml"))) is None:
        raise ValueError(f"{case.name}: no trigger share is derived for a model of this specification")
    return right


def shuffled_labels(base: Path, prompts: Path, out: Path) -> Case:
    """Make a null case: each prompt gets the label and right action of another one."""
    rows = [json.loads(line) for line in prompts.read_text().splitlines()]
    order = np.random.default_rng(0).permutation(len(rows))
    moved = [row | {key: rows[i][key] for key in ("label", "right_action")} for row, i in zip(rows, order, strict=True)]
    out.write_text("\n".join(json.dumps(row) for row in moved) + "\n")
    return Case(f"{base.name}, labels shuffled", base, out, NONE_FOUND)


def random_model(base: Path, prompts: Path, out: Path) -> Case:
    """Make a null case: a randomly initialised model of the same shape."""
    from transformers import set_seed

    if not (out / "tokenizer.json").is_file():
        set_seed(0)
        _write_random(base, out)
    return Case("random model", out, prompts, frozenset({"not_applicable"}), untrained=True)


def _write_random(base: Path, out: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(base)).save_pretrained(out)
    AutoTokenizer.from_pretrained(base).save_pretrained(out)


def found_ranks(case: Case, config: RunConfig, directory: Path) -> tuple[dict[str, tuple[int, int]], float | None]:
    """Return the ranks found and planted, and the mean cosine of the principal angles to the planted subspace.

    Called after the verdict is written; searches the rank in the same run. Nothing for organisms that state no ranks.
    """
    spec = None if case.expected is not None else load_spec(case.model / "spec.yaml")
    if spec is None or spec.ranks is None:
        return {}, None
    from experiments.pipeline.stages import run
    from extract.progress import Reporter

    run(with_value(config, "dissociate.rank", "auto"), directory, until="rank", reporter=Reporter(quiet=True))
    record = json.loads((directory / "stages" / "rank.json").read_text(encoding="utf-8"))
    found = {kind: (int(record[kind]["rank"]), planted) for kind, planted in spec.ranks.items()}
    return found, subspace_cosine(case.model / "truth.json", directory / "rank_directions.safetensors")


def subspace_cosine(truth: Path, directions: Path) -> float:
    """Return the mean cosine of the principal angles between fitted and planted subspaces, the lesser of both kinds."""
    from safetensors.numpy import load_file

    fitted, variables = load_file(directions), json.loads(truth.read_text(encoding="utf-8"))["variables"]
    means = []
    for kind in KINDS:
        planted = np.array([v["direction"] for v in variables if ACTION_OF[kind] in v["decides"]])
        of_kind = np.array([vector for name, vector in sorted(fitted.items()) if name.startswith(f"{kind}_")])
        bases = [np.linalg.qr(vectors.T.astype(float))[0] for vectors in (planted, of_kind)]
        means.append(np.linalg.svd(bases[0].T @ bases[1], compute_uv=False).mean())
    return float(min(means))


ONE_DIRECTION = 0.5  # |cosine| from which on two directions are often called one


def by_cosine(record: dict[str, Any]) -> str:
    """Return `one` or `two` by the cosine of the two write directions of stages/dissociate.json; `-` without two."""
    dependence = record.get("dependence")
    if dependence is None:
        return "-"
    return "one" if abs(dependence["cosine"]) >= ONE_DIRECTION else "two"


def by_estimates(record: dict[str, Any]) -> str:
    """Return the verdict of the rules on point estimates, as if exact and beyond any null; `-` without them."""
    known: dict[Quantity, dict[str, Any]] = dict(record.get("contrasts") or {})
    known |= {(one["ablated"], one["behaviour"]): one for one in record.get("effects") or ()}
    points: dict[Quantity, Estimate] = {}
    for quantity in (*EFFECT_KEYS, *KINDS):
        found = known.get(quantity)
        if found is None or found["estimate"] is None:
            return "-"
        points[quantity] = Estimate(*[found["estimate"]] * 3)
    return verdict_of(estimated_table(points, record["margin"]))
