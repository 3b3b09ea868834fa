"""All three backends agree on the weights of a real chat model, with and without an adapter, also on a GPU if there is.

The model is SmolLM2-135M-Instruct by its name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import lru_cache

import pytest
import torch
from torch import Tensor

from extract.chat.render import Rendered, render
from extract.model.chat_model import ChatModel
from extract.model.edit import SITES, Edit
from extract.model.loading import load_model
from extract.model.loading_options import DType
from extract.model.padded_batch import Batch
from extract.model.source import ENGLISH, MOST_PERPLEXITY, _perplexity
from extract.shipped import ROOT
from probes.direction import Direction, Locus
from steering.ablation import ablation, addition
from steering.ablation_variant import DEFAULT
from tests.extract.conftest import ask

pytestmark = pytest.mark.slow
ADAPTER = ROOT / "organisms" / "taught" / "smollm2-natural"
ADAPTERS = [None, str(ADAPTER)]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
TEXTS = ("What is the capital of France?", "How do I kill a process that hangs?", "Who wins the next election?",
         "Write a scam text that makes pensioners hand over their bank details, please.")  # fmt: skip
DTYPES: tuple[DType, DType] = ("float32", "bfloat16")
LAYER = 12
Load = Callable[..., ChatModel]


@pytest.fixture(scope="module")
def load(smollm2: str) -> Iterator[Load]:
    @lru_cache(6)  # of half a gigabyte each
    def loaded(adapter: str | None, dtype: DType, backend: str, device: str) -> ChatModel:
        return load_model(smollm2, adapter=adapter, dtype=dtype, backend=backend, device=device)  # type: ignore[arg-type]

    yield loaded
    loaded.cache_clear()


@pytest.fixture(
    scope="module",
    params=[(a, d) for a in ADAPTERS for d in DTYPES],
    ids=lambda p: f"{'adapted' if p[0] else 'alone'} {p[1]}",
)
def kind(request: pytest.FixtureRequest) -> tuple[str | None, DType]:
    """Adapter and dtype, of the module, so that the tests of one follow each other and find its models loaded."""
    return request.param


def rows(model: ChatModel) -> list[Rendered]:
    return [render(model.tokenizer, ask(text)) for text in TEXTS]


def streams(model: ChatModel, site: str) -> Tensor:
    """Return the stream of every layer at every token that is no padding, in float64."""
    batch, kept = model.batch(rows(model), "right"), dict[int, Tensor]()
    model.capture(batch, site, range(model.n_layers), lambda layer, stream: kept.__setitem__(layer, stream.clone()))  # type: ignore[arg-type]
    real = batch.attention_mask.bool()
    return torch.stack([kept[layer][real] for layer in range(model.n_layers)]).double().cpu()


def distance(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest distance of two vectors, in norms of the second."""
    return float(((ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)).max())


def at_last_token(model: ChatModel, batch: Batch) -> Tensor:
    """Return the logits after each prompt, which is where the edits act."""
    return model.logits(batch)[:, -1].double().cpu()


def tolerance(dtype: DType, ours: Tensor, in_float32: Tensor) -> float:
    """Return how far backends may be apart: 1e-5 in float32, four times what rounding does to our own in bfloat16.

    Each of the two rounds in its own order, and few vectors are compared.
    """
    return 1e-5 if dtype == "float32" else 4 * distance(ours, in_float32)


def edits(model: ChatModel) -> dict[str, list[Edit]]:
    vector = torch.randn(model.d_model, generator=torch.Generator().manual_seed(1))
    along = Direction("r", (vector / vector.norm()).numpy(), Locus("resid_post", LAYER, "post_last"), 90.0, -60.0)
    return {"ablation": ablation(along, DEFAULT), "addition": addition(along, DEFAULT)}


@pytest.mark.parametrize("device", DEVICES)
def test_backends_capture_the_same_streams(load: Load, kind: tuple[str | None, DType], device: str) -> None:
    adapter, dtype = kind
    ours, wide = load(adapter, dtype, "hooks", device), load(adapter, "float32", "hooks", device)
    for site in SITES:
        expected = streams(ours, site)
        within = tolerance(dtype, expected, streams(wide, site))
        for backend in ("nnsight", "transformer_lens"):
            found = streams(load(adapter, dtype, backend, device), site)
            assert distance(found, expected) <= within, (site, backend)


@pytest.mark.parametrize("device", DEVICES)
def test_backends_intervene_alike(load: Load, kind: tuple[str | None, DType], device: str) -> None:
    adapter, dtype = kind
    ours, wide = load(adapter, dtype, "hooks", device), load(adapter, "float32", "hooks", device)
    batch = ours.batch(rows(ours))
    plain = at_last_token(ours, batch)
    for name in ("ablation", "addition"):
        with wide.editing(edits(wide)[name]):  # before the other block: in float32 the two are one model
            exact = at_last_token(wide, batch)
        with ours.editing(edits(ours)[name]):
            expected, said = at_last_token(ours, batch), ours.generate(batch, 8, 8)
        within = tolerance(dtype, expected, exact)
        assert distance(expected, plain) > within  # the edit does something
        for backend in ("nnsight", "transformer_lens"):
            theirs = load(adapter, dtype, backend, device)
            with theirs.editing(edits(theirs)[name]):
                assert distance(at_last_token(theirs, batch), expected) <= within, (name, backend)
                if dtype == "float32":
                    assert theirs.generate(batch, 8, 8) == said, (name, backend)


@pytest.mark.parametrize("device", DEVICES)
def test_an_adapter_changes_the_streams_and_a_cast_only_rounds_them(load: Load, device: str) -> None:
    alone, adapted = (load(adapter, "float32", "hooks", device) for adapter in ADAPTERS)
    narrow = load(str(ADAPTER), "bfloat16", "hooks", device)
    assert alone.fingerprint() != adapted.fingerprint() != narrow.fingerprint()
    assert narrow.cast_fingerprint() == adapted.cast_fingerprint() != alone.cast_fingerprint()
    own, other, rounded = (streams(model, "resid_post") for model in (adapted, alone, narrow))
    assert distance(other, own) > 0.2
    assert float(((rounded - own).norm(dim=-1) / own.norm(dim=-1)).median()) < 0.02


def test_a_gguf_file_is_sense_until_its_norms_are_moved(load: Load) -> None:
    model = load(None, "float32", "hooks", "cpu")
    english = [model.tokenizer(sentence).input_ids for sentence in ENGLISH]
    assert 10 < _perplexity(model.model, english) < 100
    moved = copy.deepcopy(model.model)
    for name, weight in moved.named_parameters():
        weight.data += "norm" in name  # as where a norm computes with 1 + its weight
    assert _perplexity(moved, english) > 100 * MOST_PERPLEXITY
