"""A tiny randomly initialised Llama with the organism's tokenizer, and dials along arbitrary directions for it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from steering.controller import steering
from steering.dial import CategoryRead, Dial, decide
from steering.gates import Readings
from tests.support import tiny_model
from tests.support.planted_dials import planted_dials
from tests.support.tiny_model import last_streams, rendered, tiny_llama

D_MODEL = 32
READ, WRITE = Locus("resid_post", 0, "post_last"), Locus("resid_post", 1, "post_last")
TEXTS = (*tiny_model.TEXTS, "please fix it for my sister.")


@pytest.fixture(scope="session")
def model() -> ChatModel:
    """Leave it as it was: all tests share it."""
    return tiny_llama()


@pytest.fixture(scope="session")
def rows(model) -> list[Rendered]:
    return rendered(model, TEXTS)


@pytest.fixture(scope="session")
def streams(model, rows) -> np.ndarray:
    return last_streams(model, rows, READ.layer)


def unit(seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=D_MODEL)
    return (drawn / np.linalg.norm(drawn)).astype(np.float32)


def gates_of(dial: Dial, streams: np.ndarray) -> np.ndarray:
    return decide(dial.probability(streams)[None], dial.threshold, dial.band)[0]


def run(model: ChatModel, rows: list[Rendered], dials: list[Dial], thresholds: dict | None = None, steps: int = 8,
        **how: object) -> tuple[list[list[int]], Readings]:  # fmt: skip
    batch = model.batch(rows)
    with steering(model, dials, batch, rows, thresholds) as readings:
        return model.generate(batch, steps, steps, **how), readings


@pytest.fixture(scope="session")
def read(streams) -> CategoryRead:
    """Recognise the first row as `one` and the second as `two`; the rest as neither, or as nothing surely."""
    target = np.array([6.0, 6.0, 0.0, 0.0, 0.0, 0.0])
    weight = np.zeros((3, streams.shape[1]))
    for k, row in ((1, 0), (2, 1)):
        wanted = np.where(np.arange(len(streams)) == row, target[row], -6.0)
        weight[k] = np.linalg.pinv(streams.astype(np.float64)) @ wanted
    return CategoryRead(("", "one", "two"), READ, weight, np.zeros(3), 0.8)


@pytest.fixture(scope="session")
def dial(streams) -> Callable[..., Dial]:
    """Make a dial whose probability is one half at the median row, so that each batch has rows on both sides."""

    def build(kind: str = "normative", **changes: object) -> Dial:
        seed = {"normative": 1, "epistemic": 2}[kind]
        weight = unit(seed).astype(np.float64)
        probe = LinearProbe(weight, -float(np.median(streams @ weight)), 0.1)
        made = {
            "read": READ, "probe": probe, "calibration": Platt(3.0, 0.0), "threshold": 0.5, "band": 0.0,
            "write": Direction(f"{kind} write", unit(seed + 10), WRITE, 9.0, -7.0),
        }  # fmt: skip
        return Dial(**{"kind": kind, **made, **changes})

    return build


@pytest.fixture(scope="session")
def planted() -> Callable[..., Dial]:
    made = {dial.kind: dial for dial in planted_dials()}
    return lambda kind="normative", **changes: replace(made[kind], **changes)


@pytest.fixture(scope="session")
def talk(two_knobs) -> Callable[..., list[Rendered]]:
    return lambda *texts: rendered(two_knobs, texts)
