"""Train a read, and a bag of words, on each set and test both on all sets.

A read is a logistic probe whose layer, position and penalty are chosen by folds within its set. On this set it is
tested by nested folds; on another one after a fit to the whole set, without prompts of a group that it was trained on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from experiments.probing.read_probes import StoredLoci
from experiments.probing.results import MOST_LAYERS, POSITIONS
from experiments.probing.unspoken import layers_read, read_by_fold
from experiments.transfer.results import TrainedRead, TransferCell, TransferResult, TransferSummary
from experiments.transfer.sets import POSITIVE, ReadSet, TransferPrompts
from extract.capture_spec import CaptureSpec
from extract.chat.render import render
from extract.errors import UserError
from extract.in_memory import Activations, capture_in_memory
from extract.model.chat_model import ChatModel
from extract.progress import Reporter
from probes.contrast import Contrast
from probes.estimators.probes import LogisticProbe
from probes.grid.baselines import bag_of_words_auroc
from probes.grid.probe_grid import LOGISTIC, LocusScores, ProbeGrid, choose_locus
from probes.statistics.intervals import NO_RATE, Estimate, clopper_pearson, grouped_mean
from probes.statistics.metrics import Discrimination, discrimination, enough

FOLDS = 4
LEAST_NEGATIVE = 100  # benign prompts, from which on one false positive is 1 % of them at most
MEAN = "inst_mean"
AT_ONCE, MOST_TOKENS = 256, 64  # prompts in memory at every token and layer; of a request, the last tokens that count
RequestTokens = Mapping[int, Sequence[Float[np.ndarray, "tokens d_model"]]]  # by layer, of each prompt


def capture_sets(
    model: ChatModel, given: TransferPrompts, reporter: Reporter, *, every_token: bool = True
) -> tuple[Activations, RequestTokens]:
    """Capture the layers and positions that reads are chosen from, and every token of requests at two middle layers."""
    layers = tuple(layers_read(range(model.n_layers), MOST_LAYERS))
    middle = layers[max(0, len(layers) // 2 - 1) : len(layers) // 2 + 1] if every_token else ()
    single, parts, tokens = (*POSITIONS, MEAN), list[Activations](), {layer: list[np.ndarray]() for layer in middle}
    with reporter.task("activations", len(given.prompts)) as advance:
        for start in range(0, len(given.prompts), AT_ONCE):
            prompts = given.prompts[start : start + AT_ONCE]
            rows = [render(model.tokenizer, prompt) for prompt in prompts]
            words = [row.roles[MEAN][-MOST_TOKENS:] if middle else () for row in rows]
            for i, some in enumerate(words):
                numbered = {f"token_{k}": (token,) for k, token in enumerate(some)}
                rows[i] = replace(rows[i], roles={**rows[i].roles, **numbered})
            spec = CaptureSpec(layers=layers, positions=(*single, *(f"token_{k}" for k in range(max(map(len, words))))))
            part = capture_in_memory(model, prompts, rows, spec, advance=advance, say=reporter.say)
            for layer, kept in tokens.items():
                stream = part.values[layers.index(layer), len(single) :]
                kept += [stream[: len(some), i].copy() for i, some in enumerate(words)]
            few = slice(len(single))
            parts.append(replace(part, values=part.values[:, few].copy(), present=part.present[few]))
    values = np.concatenate([part.values for part in parts], axis=2)
    present = np.concatenate([part.present for part in parts], axis=1)
    return replace(parts[0], values=values, present=present, positions=single, prompts=given.prompts), tokens


def transfer(activations: Activations, given: TransferPrompts, seed: int, reporter: Reporter) -> TransferResult:
    """Return every cell of the matrix of each kind; UserError: a set has too few groups for its folds."""
    contrasts = [
        Contrast(f"{one.kind}, {one.name}", one.rows, one.y, given.groups[one.rows], np.full(len(one.rows), ""))
        for one in given.sets
    ]
    layers, positions = activations.layers, tuple(p for p in activations.positions if p in POSITIONS)
    present = np.array([activations.present[activations.positions.index(p)] for p in positions])
    try:
        grid = ProbeGrid.cross_validated(contrasts, FOLDS, seed=seed, names=[p.id for p in given.prompts])
        with reporter.task("probes", len(layers) * len(positions)) as advance:
            loci = StoredLoci(activations, layers, positions)
            scored = list(grid.scores_by_locus(loci, layers, positions, present=present, progress=lambda: advance(1)))
    except ValueError as error:
        raise UserError(str(error)) from error
    reads, cells = [], []
    with reporter.task("cells", len(given.sets)) as advance:
        for i, one in enumerate(given.sets):
            mine = [locus for locus in scored if locus.contrast == contrasts[i].name]
            read, probe = _fitted(activations, one, mine)
            reads.append(read)
            cells.append(_own_cell(given, activations, grid, i, mine))
            X = activations.read(read.layer, read.position)
            others = [other for other in given.sets if other.kind == one.kind and other is not one]
            cells += [cell for other in others if (cell := _cell(given, one, other, probe, X)) is not None]
            advance(1)
    summary = tuple(summarised(kind, cells) for kind in POSITIVE if any(cell.kind == kind for cell in cells))
    return TransferResult(
        model=activations.model, prompts=len(given.prompts), reads=tuple(reads), cells=tuple(cells), summary=summary
    )


def _fitted(activations: Activations, one: ReadSet, scored: Sequence[LocusScores]) -> tuple[TrainedRead, LogisticProbe]:
    locus = choose_locus(scored)
    C = float(np.median(locus.scores[LOGISTIC].C))
    probe = LogisticProbe(C=C).fit(activations.read(locus.layer, locus.position)[one.rows], one.y)
    about = {"kind": one.kind, "name": one.name, "source": one.source}
    return TrainedRead(**about, layer=locus.layer, position=locus.position, C=C), probe


def _own_cell(
    given: TransferPrompts, activations: Activations, grid: ProbeGrid, at: int, scored: Sequence[LocusScores]
) -> TransferCell:
    """Return a set's cell with itself; each fold has a probe, a layer and words that were chosen without it."""
    one, contrast = given.sets[at], grid.contrasts[at]
    reads = read_by_fold(activations, grid, at, scored)
    found = discrimination(contrast.y, reads.probability - 0.5, contrast.groups)  # calibrated, so of one scale
    found = replace(found, auroc=reads.auroc(np.ones(len(contrast.y), dtype=bool)))
    texts = [_text(given, row) for row in one.rows]
    words = [bag_of_words_auroc(texts, contrast.y, fold.train, fold.test) for fold in grid.folds[at]]
    return _as_cell(one, one, found, float(np.mean(words)))


def _cell(
    given: TransferPrompts, train: ReadSet, test: ReadSet, probe: LogisticProbe, X: np.ndarray
) -> TransferCell | None:
    """Return a read's cell with another set; None where too few of its prompts are in no group with trained ones."""
    new = ~np.isin(given.groups[test.rows], given.groups[train.rows])
    rows, y = test.rows[new], test.y[new]
    if not enough(int(y.sum()), int((~y).sum())):
        return None
    found = discrimination(y, probe.decision_function(X[rows]), given.groups[rows])
    texts = [_text(given, row) for row in (*train.rows, *rows)]
    n = len(train.rows)
    words = bag_of_words_auroc(texts, np.concatenate([train.y, y]), np.arange(n), np.arange(n, len(texts)))
    return _as_cell(train, test, found, words, int((~new).sum()))


def _as_cell(train: ReadSet, test: ReadSet, found: Discrimination, words: float, left_out: int = 0) -> TransferCell:
    recall, n = found.recall_at_1pct_fpr, found.groups_positive
    shared = train is not test and train.counterpart is not None and train.counterpart == test.counterpart
    return TransferCell(
        kind=test.kind,
        trained_on=train.name,
        tested_on=test.name,
        source=test.source,
        auroc=found.auroc,
        recall_at_1pct_fpr=clopper_pearson(recall * n, n) if found.n_negative >= LEAST_NEGATIVE else NO_RATE,
        same_counterpart=shared,
        words_auroc=words,
        n_positive=found.n_positive,
        n_negative=found.n_negative,
        left_out=left_out,
    )


def summarised(kind: str, cells: Sequence[TransferCell]) -> TransferSummary:
    """Return the means of a kind's cells, with t intervals over the sets that are tested on."""
    mine = [cell for cell in cells if cell.kind == kind]
    own = [cell for cell in mine if cell.trained_on == cell.tested_on]
    other = [cell for cell in mine if cell.trained_on != cell.tested_on and not cell.same_counterpart]

    def mean(some: Sequence[TransferCell], value: Callable[[TransferCell], float]) -> Estimate:
        by_set = defaultdict[str, list[float]](list)
        for cell in some:
            by_set[cell.tested_on] += [number] if np.isfinite(number := value(cell)) else []
        values = np.array([np.mean(numbers) for numbers in by_set.values() if numbers])
        found = grouped_mean(values, np.arange(len(values)), least=0.0).counted(len(values))
        return replace(found, high=min(1.0, found.high))

    twins, unmatched = ([cell for cell in own if (cell.source == "twins") is yes] for yes in (True, False))
    sides = {"twins": twins, "unmatched": unmatched, "own": own, "other": other}
    means = {name: mean(some, lambda cell: cell.auroc.estimate) for name, some in sides.items()}
    means |= {
        f"{name}_recall": mean(some, lambda cell: cell.recall_at_1pct_fpr.estimate)
        for name, some in sides.items()
        if name != "own"
    }
    return TransferSummary(kind=kind, **means, other_words=mean(other, lambda cell: cell.words_auroc))


def _text(given: TransferPrompts, row: int) -> str:
    return " ".join(message["content"] for message in given.prompts[row].messages)
