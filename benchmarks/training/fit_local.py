"""Fit the probe of the judge `local`: `python -m benchmarks.training.fit_local` writes its weights.

The activations of every labelled completion are captured once (40 minutes on two cores) and kept in the cache. The
layer is chosen inside the folds, by whole families of models and languages left out. The loss is the marginal
likelihood of the readings that a label allows, as in `fit.py`. Needs the labelled data (shared/data) and the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Bool, Float

from benchmarks.training.fit import Read, fit_allowed, read
from benchmarks.training.folds import FAMILIES, unseen_parts
from benchmarks.training.labelled import Labelled, all_labelled
from extract.keyed_file import content_key
from extract.model.loading import load_model
from extract.progress import Reporter
from extract.shipped import cache_folder
from judging.local import PROBE
from judging.local_model import COMPLETION_TOKENS, FIRST, PROMPT_TOKENS, QUESTION, READINGS, LocalModel, Probe
from scoring.judges.config import LocalConfig
from scoring.judges.visible_text import text_to_judge

LAYERS = (11, 14, 17)  # that are captured, of 24
TONGUES = (frozenset({"de", "es", "hi"}), frozenset({"fr", "pt", "ar"}))
PENALTY = 30.0  # on the weights of the standardised activations, as a whole
LARGE, STRIDE = ("gemma-2b", "CoCoNot"), 3  # sets whose labels are a machine's or all the same: every third is used
LANGUAGES = ("de", "es", "fr", "pt", "zh")  # right in 85 % or more; not Arabic (84) and Hindi (32)
Matrix = Float[np.ndarray, "row input"]


@dataclass(frozen=True)
class Captured:
    """Labelled completions and their activations."""

    rows: Sequence[Read]
    states: Matrix  # layers of LAYERS side by side

    @property
    def used(self) -> Bool[np.ndarray, " row"]:
        """Which rows are fitted on."""
        seen: Counter[str] = Counter()
        kept = []
        for one in self.rows:
            seen[one.row.dataset] += 1
            kept.append(one.row.dataset not in LARGE or seen[one.row.dataset] % STRIDE == 0)
        return np.array(kept) & self.allowed.any(axis=1)

    @cached_property
    def allowed(self) -> Bool[np.ndarray, "row reading"]:
        """Which of READINGS each label allows."""
        return np.array([[name in one.row.readings for name in READINGS] for one in self.rows])

    def at(self, layer: int) -> Matrix:
        """Return the activations of a layer."""
        return np.split(self.states, len(LAYERS), axis=1)[LAYERS.index(layer)]


def capture(rows: Sequence[Labelled], model: LocalModel, say: Reporter) -> Captured:
    """Return completions that have a text, with their activations, which are kept in the cache."""
    read_as = [(row, text_to_judge(row.completion, row.prompt)) for row in rows]
    known = [(row, text) for row, text in read_as if text and isinstance(text, str)]
    texts = [(row.prompt, text) for row, text in known]
    how = (QUESTION, PROMPT_TOKENS, COMPLETION_TOKENS, FIRST)
    key = content_key(how, model.layers, model.chat.cast_fingerprint(), texts)
    path = cache_folder() / "judge" / f"{key[:16]}.npy"
    if not path.is_file():
        with say.task("activations", len(texts)) as advance:
            states = model.states(texts, advance)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, states.numpy().astype(np.float16))
    return Captured(read([row for row, _ in known]), np.load(path).astype(np.float32))


def fit_probe(of: Captured, places: Bool[np.ndarray, " row"], layer: int) -> Probe:
    """Return a probe fitted on rows."""
    X = of.at(layer)[places]
    mean, spread = X.mean(axis=0), X.std(axis=0) + 1e-6
    scale = spread * np.sqrt(X.shape[1] * PENALTY / 100)
    weights = [one.row.weight for one, used in zip(of.rows, places, strict=True) if used]
    W = fit_allowed(np.hstack([(X - mean) / scale, np.ones((len(X), 1))]), of.allowed[places], weights)
    weight = W[:-1] / scale[:, None]
    as_tensor = partial(torch.tensor, dtype=torch.float32)
    return Probe((layer,), as_tensor(weight), as_tensor(W[-1] - mean @ weight))


def probabilities(of: Captured, probe: Probe, places: Bool[np.ndarray, " row"]) -> Matrix:
    """Return the probability of each reading of rows."""
    return probe.probabilities(torch.tensor(of.at(*probe.layers)[places])).numpy()


def choose(of: Captured, places: Bool[np.ndarray, " row"]) -> int:
    """Return the layer at which probes do best on families of models, and on languages, that they have not seen."""
    models = [one.row.model for one in of.rows]
    groups = [places & np.array([model in group for model in models]) for group in (*FAMILIES, *TONGUES)]

    def loss(layer: int) -> float:
        return float(np.mean([_loss(of, fit_probe(of, places & ~out, layer), out) for out in groups if out.any()]))

    return min(LAYERS, key=loss)


def _loss(of: Captured, probe: Probe, places: Bool[np.ndarray, " row"]) -> float:
    right = (probabilities(of, probe, places) * of.allowed[places]).sum(axis=1)
    return float(-np.log(np.maximum(right, 1e-12)).mean())


def unseen(of: Captured, say: Reporter) -> Iterator[tuple[Bool[np.ndarray, " row"], Probe]]:
    """Yield rows, and a probe that saw neither their models nor their kinds of prompts; each row once."""
    parts = [*unseen_parts(of.rows), (lambda one: not one.row.outcomes, lambda one: not one.row.outcomes)]
    with say.task("probes", len(parts)) as advance:
        for held, close in parts:
            kept = of.used & np.array([not close(one) for one in of.rows])
            yield np.array([held(one) for one in of.rows]), fit_probe(of, kept, choose(of, kept))
            advance(1)


def write() -> None:
    """Fit on every set that permits it, and write the probe."""
    say, config = Reporter(), LocalConfig()
    chat = load_model(config.model, dtype=config.dtype)
    of = capture(all_labelled(), LocalModel(chat, LAYERS), say)
    layer = choose(of, of.used)
    probe = replace(fit_probe(of, of.used, layer), model=chat.cast_fingerprint(), languages=LANGUAGES)
    sets = Counter(one.row.dataset for one, used in zip(of.rows, of.used, strict=True) if used)
    probe.save(PROBE, sets)
    size, n_rows = PROBE.stat().st_size / 1e3, sum(sets.values())
    print(f"layer {layer}, {size:.0f} kB, fitted on {n_rows} rows")


if __name__ == "__main__":
    write()
