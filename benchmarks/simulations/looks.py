"""What sequential tests save and cost: verdicts by look, and directions that a null draws.

    python -m benchmarks.simulations.looks

Outcomes are those of `simulations.power` with one prompt a group; the file has as many groups of decliners of each
behaviour, of which a third, two thirds and all are judged at the looks. `at once`: judged once, at the end.
"""

from __future__ import annotations

import numpy as np

from benchmarks.simulations.power import LEFT_ALONE, simulated_effect
from benchmarks.table import main
from experiments.dissociation.verdict import measure as measure_effects
from experiments.dissociation.verdict import verdict_shown
from experiments.dissociation.verdict_rules import EFFECT_KEYS
from experiments.run.behaviour import KINDS
from probes.statistics.sequential import DrawingRule, look_level

LOOKS = (1 / 3, 2 / 3, 1.0)
POWERS = (1.0, 1.5, 3.0)  # of the information by which the level is spent; 3 is close to O'Brien and Fleming's limits
CASES = (("double_dissociation", 0.6), ("shared_knob", 0.9), ("no_effect", 0.0))
GROUPS = (40, 60, 100, 200)
SHARES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.3, 0.9)


def measure(quick: bool) -> dict[str, float]:
    """Print both tables and return the figures."""
    figures = dict[str, float]()
    print("share of runs with the right verdict by the first, second and third look; mean share of groups; wrong")
    for (case, effect), n in ((of, n) for of in CASES for n in GROUPS):
        print(f"{case} {effect:g}, {n} groups ({LEFT_ALONE:g} left alone)")
        for name, levels in _levels().items():
            by_look, used, wrong = verdicts(case, effect, n, levels, 10 if quick else 300)
            print(f"    {name:<12}" + "".join(f"{share:6.2f}" for share in by_look) + f"{used:9.2f}{wrong:9.3f}")
            figures |= {f"{case} {effect:g}; {n}; {name}; look {i + 1}": share for i, share in enumerate(by_look)}
            figures |= {f"{case} {effect:g}; {n}; {name}; used": used, f"{case} {effect:g}; {n}; {name}; wrong": wrong}
    print("\ndirections drawn of at most 199, and power at 0.05, by the share of null directions beyond the effect")
    rule = DrawingRule(199, 0.05)
    for share in SHARES:
        figures |= {f"null; {share:g}; drawn": rule.mean_draws(share), f"null; {share:g}; power": rule.power(share)}
        print(f"{share:6g}{rule.mean_draws(share):8.1f}{rule.power(share):8.3f}")
    drawn = float(np.mean([rule.mean_draws(share) for share in (np.arange(1000) + 0.5) / 1000]))
    print(f"no effect: {drawn:.1f}")
    return figures | {"null; no effect; drawn": drawn}


def _levels() -> dict[str, tuple[float, ...]]:
    spent = {
        f"t^{power:g}": tuple(look_level(LOOKS[: i + 1], 0.05, power) for i in range(len(LOOKS))) for power in POWERS
    }
    return spent | {"at once": (0.0, 0.0, 0.05)}


def verdicts(
    case: str, effect: float, n: int, levels: tuple[float, ...], n_runs: int
) -> tuple[list[float], float, float]:
    """Return the shares of runs with the right verdict by each look, the share of groups used, that of wrong runs."""
    rng, shown = np.random.default_rng([n, int(100 * effect), len(case)]), list[tuple[str, int]]()
    for _ in range(n_runs):
        whole = {key: simulated_effect(case, key, effect, n, 1, rng) for key in EFFECT_KEYS}
        for look, level in enumerate(levels):
            seen = round(LOOKS[look] * n)
            effects = {key: type(of)(of.stopped[:seen], of.p_null) for key, of in whole.items()}
            verdict = "inconclusive"
            if level:
                verdict = verdict_shown(*measure_effects(effects, dict.fromkeys(KINDS, float(seen)), level), 0.15)
            if verdict != "inconclusive":
                break
        shown.append((verdict, look))
    by_look = [float(np.mean([v == case and at <= look for v, at in shown])) for look in range(len(LOOKS))]
    wrong = float(np.mean([v not in (case, "inconclusive") for v, _ in shown]))
    return by_look, float(np.mean([LOOKS[at] for _, at in shown])), wrong


if __name__ == "__main__":
    main("simulations.looks", measure)
