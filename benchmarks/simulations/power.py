"""How often verdicts are reached: by the number of decliners, the effect, and the prompts of a group.

Outcomes are drawn from known effects; intervals, classes and verdicts are the run's own. The effects of a case exceed
the null where they exist. In groups of four, outcomes have an intra-class correlation of 0.3; the intervals count
groups, whatever the correlation.
"""

from __future__ import annotations

import numpy as np

from benchmarks.simulations.clustered import rates
from benchmarks.table import main
from experiments.dissociation.verdict import Effect, verdict_shown
from experiments.dissociation.verdict import measure as measure_effects
from experiments.dissociation.verdict_rules import EFFECT_KEYS, EffectKey
from experiments.run.behaviour import KINDS
from experiments.triggers.judge import share_interval, verdict_of_share
from experiments.triggers.quadruples import MEMBERS

DECLINERS = (25, 50, 100, 200, 400)
EFFECTS = (0.3, 0.6, 0.9)
SIZES = (1, 4)  # prompts a group
ICC = 0.3
LEFT_ALONE = 0.02  # effect of a direction on what it does not act on
SHARES = {0.0: "intent_driven", 0.05: "intent_driven", 0.25: "mixed", 0.5: "mixed", 1.0: "trigger_driven"}
WORD_ONLY, WORD_OR_INTENT, INTENT_ONLY = (  # refusal of each of the four cells
    np.array([float(refused(*cell)) for cell in MEMBERS])
    for refused in (lambda word, harm: word, lambda word, harm: word or harm, lambda word, harm: harm)
)
NORMATIVE, EPISTEMIC = KINDS
CASES: dict[str, tuple[EffectKey, ...]] = {  # the effects that exist
    "double_dissociation": ((NORMATIVE, NORMATIVE), (EPISTEMIC, EPISTEMIC)),
    "single_dissociation_normative": ((NORMATIVE, NORMATIVE),),
    "one_direction_normative": ((NORMATIVE, NORMATIVE), (NORMATIVE, EPISTEMIC)),
    "shared_knob": EFFECT_KEYS,
    "graded_dissociation": EFFECT_KEYS,  # half as strong on the other behaviour
    "no_effect": (),
}


def measure(quick: bool) -> dict[str, float]:
    """Print the tables and return the figures."""
    n_runs, figures = 10 if quick else 400, dict[str, float]()
    for size in SIZES:
        print(f"\n{size} prompt(s) a group: share of runs with the right verdict, by decliners of each behaviour")
        print(f"{'verdict, effect':<40}" + "".join(f"{n:>7}" for n in DECLINERS) + f"{'wrong':>9}")
        for case, effect in _cases():
            row, wrong = [], []
            for n in DECLINERS:
                right, other = verdict_power(case, effect, n, size, n_runs)
                row.append(right)
                wrong.append(other)
                figures[f"{case}; {effect:g}; {size} a group; {n}"] = right
            print(f"{f'{case}, {effect:g}':<40}" + "".join(f"{value:7.2f}" for value in row) + f"{max(wrong):9.3f}")
        print(f"{'trigger share (minimal pairs of four)':<40}" + "".join(f"{n:>7}" for n in DECLINERS) + "  (width)")
        for share, verdict in SHARES.items():
            found = [share_power(share, verdict, n, size, n_runs) for n in DECLINERS]
            figures |= {f"share {share:g}; {size} a group; {n}": of[0] for n, of in zip(DECLINERS, found, strict=True)}
            print(
                f"{f'{verdict}, share {share:g}':<40}"
                + "".join(f"{right:7.2f}" for right, _ in found)
                + "  "
                + " ".join(f"{width:.2f}" for _, width in found)
            )
    return figures


def _cases() -> list[tuple[str, float]]:
    found = [(case, effect) for case in CASES for effect in EFFECTS if case not in ("no_effect",)]
    full = ("one_direction_normative", "graded_dissociation")  # these need an effect of at least 1 - 2 margins, or 0.6
    kept = [(case, effect) for case, effect in found if case not in full or effect >= (0.9 if "one" in case else 0.6)]
    return [*kept, ("no_effect", 0.0)]


def verdict_power(case: str, effect: float, n: int, size: int, n_runs: int) -> tuple[float, float]:
    """Return how often the right verdict is reached, and how often a wrong one (inconclusive is neither)."""
    rng, found = np.random.default_rng([n, size, int(100 * effect), len(case)]), []
    n_groups = n // size
    for _ in range(n_runs):
        effects = {key: simulated_effect(case, key, effect, n_groups, size, rng) for key in EFFECT_KEYS}
        intervals = measure_effects(effects, dict.fromkeys(KINDS, float(n_groups)), 0.05)
        found.append(verdict_shown(*intervals, 0.15))
    right = float(np.mean([verdict == case for verdict in found]))
    return right, 1 - right - float(np.mean([verdict == "inconclusive" for verdict in found]))


def simulated_effect(
    case: str, key: EffectKey, effect: float, n_groups: int, size: int, rng: np.random.Generator
) -> Effect:
    """Draw which decliners stop, in groups of some size, of an effect that exists in a case or not."""
    exists = key in CASES[case]
    mean = effect if exists else LEFT_ALONE
    if case == "graded_dissociation" and key[0] != key[1]:
        mean = effect / 2
    of_groups = rates(ICC if size > 1 else 0.0, mean, n_groups, rng)
    return Effect((rng.random((n_groups, size)) < of_groups[:, None]).ravel(), 0.005 if exists else 0.5)


def share_power(share: float, verdict: str, n: int, size: int, n_runs: int) -> tuple[float, float]:
    """Return how often the verdict on the trigger share is reached with n minimal pairs, and the median width.

    With a share s up to 0.5, harmful requests are refused, and of 2s of the groups those with the trigger word, too;
    with a share of 1, requests with the word are refused and no others. All pairs of a group have one word.
    """
    rng, right, widths = np.random.default_rng([n, size, int(100 * share)]), [], []
    for _ in range(n_runs):
        by_word = (rng.random(n // size) < 2 * share)[:, None]
        cells = np.where(by_word, WORD_ONLY if share == 1 else WORD_OR_INTENT, INTENT_ONLY)
        interval = share_interval(cells)
        right.append(verdict_of_share(interval)[0] == verdict)
        widths.append(interval.high - interval.low)
    return float(np.mean(right)), float(np.median(widths))


if __name__ == "__main__":
    main("simulations.power", measure)
