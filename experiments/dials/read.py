"""Read of a dial: a probe at or below the first write layer, with a calibrated probability of the declining class.

Scores of a probe on its own training prompts are too good, so these are cross-fitted (whole groups) before calibration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.model_selection import StratifiedGroupKFold

from experiments.dials.operating_point import CERTIFIED_ON
from experiments.dials.results import MOST_PROMPTS, TOKEN_READINGS, TokenReadings
from experiments.probing.read_probes import contrast_of, fit_grid
from experiments.responses.loaded_run import LoadedRun
from extract.atomic_write import write_jsonl
from extract.backoff import TokenBudget
from extract.capture_spec import THOUGHT_END, is_generated
from extract.chat.render import token_texts
from extract.errors import UserError
from extract.store.activation_store import ActivationStore
from probes.contrast import Contrast
from probes.direction import Locus
from probes.grid.logistic import LinearProbe, Platt, fit_platt
from probes.grid.probe_grid import LOGISTIC, choose_locus
from probes.grid.solver import fit_logistic_batch
from probes.statistics.certify import one_per_group
from probes.statistics.metrics import Discrimination, brier, expected_calibration_error
from steering.controller import token_log_odds
from steering.dial import Dial, Reference
from steering.dial_file import read_dials

DIGITS = 3  # of the log-odds of tokens
CHOICE = ("train", "validation")  # the parts that calibrate probabilities and choose thresholds
FOLDS = 5


@dataclass(frozen=True)
class DialRead:
    """A calibrated probability for every prompt of the corpus, with the probe that gave it."""

    locus: Locus
    probe: LinearProbe
    platt: Platt
    declining: Bool[np.ndarray, " prompts"]  # the labels it was fitted to
    probability: Float[np.ndarray, " prompts"]  # of declining; training prompts: cross-fitted
    test: Discrimination
    test_ece: float
    test_brier: float

    def among(self, rows: Int[np.ndarray, " some"]) -> DialRead:
        """Return the read with the probabilities of some of the prompts."""
        return replace(self, declining=self.declining[rows], probability=self.probability[rows])


def fit_read(loaded: LoadedRun, name: str, declining: Bool[np.ndarray, " prompts"], first_write: int) -> DialRead:
    """Fit the read of the prompts to decline against other rated ones; above the first write it were circular.

    `loaded` is a run's `reading`, and `declining` labels all its prompts: a read needs no answers.
    """
    store = loaded.store
    there = np.ones(len(declining), dtype=bool)
    if loaded.config.steer.at == "thought":
        there = store.present[store.positions.index(thought_end(store)[0])]
    contrast = contrast_of(loaded.corpus, name, declining & there, loaded.corpus.rated & ~declining & there)
    layers = [layer for layer in store.layers if layer <= first_write]
    everywhere = (p for i, p in enumerate(store.positions) if store.present[i].all())
    positions = [p for p in everywhere if not is_generated(p)]
    if loaded.config.steer.at == "thought":
        positions = thought_end(store)
    grid, loci = fit_grid(loaded, [contrast], layers, positions, f"fitting the {name} dial")
    best = choose_locus(loci)
    X, C = store.read(best.layer, best.position), float(best.scores[LOGISTIC].C[0])
    probe = grid.fit(X, name, C=C)
    score = cross_fitted_scores(X[contrast.rows], contrast, probe, loaded.config.seed)
    chosen, test = np.isin(contrast.part, CHOICE), contrast.within("test")
    platt = fit_platt(score[chosen], contrast.y[chosen])
    calibrated = platt.probability(score)
    probability = platt.probability(probe.decision_function(X))  # of dual-use prompts too, which fit nothing
    probability[~there] = 0.0  # answered plainly whatever the gate
    probability[contrast.rows] = calibrated
    return DialRead(
        locus=Locus(store.site, best.layer, best.position),
        probe=probe,
        platt=platt,
        declining=declining,
        probability=probability,
        test=best.scores[LOGISTIC].test,
        test_ece=expected_calibration_error(contrast.y[test], calibrated[test]),
        test_brier=brier(contrast.y[test], calibrated[test]),
    )


def with_reference(loaded: LoadedRun, dial: Dial, read: DialRead) -> Dial:
    """Return a dial with what it reads of the certification prompts, and of plain answers to the benign ones.

    `read` has the probability of each of the reading's prompts. Onset biases and dials at a thought's end have none.
    """
    every, locus, seed = loaded.reading, dial.read, loaded.config.seed
    if locus is None or locus.position == THOUGHT_END:
        return dial
    rows = np.flatnonzero(every.corpus.rated & every.corpus.within(CERTIFIED_ON))
    rows = one_per_group(rows, every.corpus.groups[rows], seed)
    benign = np.flatnonzero(loaded.corpus.benign & loaded.corpus.within(CERTIFIED_ON))
    benign = one_per_group(benign, loaded.corpus.groups[benign], seed)
    generate = loaded.config.generate
    most = generate.max_new_tokens - generate.settled_within - 1  # of a cut answer the last token is not run
    said = benign.tolist() if most > 0 else []
    asked = [(loaded.rendered[row].token_ids, loaded.completions[row].token_ids[:most]) for row in said]
    highest: dict[int, float] = {}

    def see(batch: list[int]) -> None:
        (log_odds,) = token_log_odds(loaded.model, [dial], [[*asked[i][0], *asked[i][1]] for i in batch]).values()
        for i, values in zip(batch, log_odds, strict=True):
            highest[i] = float(values[len(asked[i][0]) :].max(initial=-np.inf))

    budget = TokenBudget.on(loaded.model.device, loaded.config.extract.token_budget, loaded.reporter.say)
    budget.run([len(prompt) + len(answer) for prompt, answer in asked], see)
    streams = every.store.read(locus.layer, locus.position)[rows].astype(np.float32)
    return replace(dial, reference=Reference(read.probability[rows], streams, np.sort([*highest.values()]), most))


def thought_end(store: ActivationStore) -> list[str]:
    """Return the position of the thought's end; UserError: it is not stored."""
    if THOUGHT_END in store.positions:
        return [THOUGHT_END]
    raise UserError(
        f"steer.at: dials cannot be at the thought's end: {store.path} does not have {THOUGHT_END}; set "
        "extract.thought_tokens to the longest thought's tokens and two more"
    )


def cross_fitted_scores(
    X: Float[np.ndarray, "rows d_model"], contrast: Contrast, probe: LinearProbe, seed: int
) -> Float[np.ndarray, " rows"]:
    """Return uncalibrated log-odds of the contrast's rows; training rows are scored by probes without their fold."""
    score, train = probe.decision_function(X), contrast.within("train")
    y, groups = contrast.y[train], contrast.groups[train]
    n_folds = min(FOLDS, *(len(np.unique(groups[side])) for side in (y, ~y)))
    splits = list(StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed).split(train, y, groups))
    fitted = np.zeros((n_folds, len(contrast.rows)), dtype=bool)
    for inside, (rows, _) in zip(fitted, splits, strict=True):
        inside[train[rows]] = True
    labels = np.tile(contrast.y, (n_folds, 1))
    folds = fit_logistic_batch(X, fitted, labels, [probe.C]).scores[:, 0]
    for own, (_, left_out) in zip(folds, splits, strict=True):
        score[train[left_out]] = own[train[left_out]]
    return score


def read_tokens(loaded: LoadedRun) -> None:
    """Write token_readings.jsonl, a line for each of at most `MOST_PROMPTS` test prompts; none without dials."""
    dials = [dial for dial in read_dials(loaded.file("dials.safetensors"))[0] if dial.read is not None]
    rows = some_of(np.flatnonzero(loaded.corpus.within("test")).tolist()) if dials else []
    lines = _token_readings(loaded, dials, rows) if rows else []
    write_jsonl(loaded.file(TOKEN_READINGS), (line.to_dict() for line in lines))


def some_of(rows: list[int], most: int = MOST_PROMPTS) -> list[int]:
    """Return at most so many rows, evenly spread over all of them."""
    return rows if len(rows) <= most else [rows[int(k * len(rows) / most)] for k in range(most)]


def _token_readings(loaded: LoadedRun, dials: list[Dial], rows: list[int]) -> list[TokenReadings]:
    model, prompts, thoughts = loaded.model, [loaded.rendered[row] for row in rows], loaded.thoughts_before_dials
    if thoughts:
        rows = [row for row, prompt in zip(rows, prompts, strict=True) if tuple(prompt.token_ids) in thoughts]
        prompts = [loaded.rendered[row].thinking(thoughts[tuple(loaded.rendered[row].token_ids)]) for row in rows]
    budget = TokenBudget.on(model.device, loaded.config.extract.token_budget, loaded.reporter.say)
    lines: dict[int, TokenReadings] = {}
    with loaded.reporter.task("readings at every token", len(rows)) as advance:

        def read(batch: list[int]) -> None:
            log_odds = token_log_odds(model, dials, [prompts[i].token_ids for i in batch])
            for k, i in enumerate(batch):
                prompt, first = prompts[i], prompts[i].instruction.start
                lines[i] = TokenReadings(
                    id=loaded.prompts[rows[i]].id,
                    tokens=token_texts(model.tokenizer, prompt.token_ids[first:]),
                    words=len(prompt.instruction),
                    log_odds={kind: values[k][first:].round(DIGITS).tolist() for kind, values in log_odds.items()},
                    read_at={d.kind: [at - first for at in prompt.roles[d.read.position]] for d in dials if d.read},
                )
            advance(len(batch))

        budget.run([len(prompt.token_ids) for prompt in prompts], read)
    return [lines[i] for i in range(len(rows))]
