"""Train the reader on labelled completions: `python -m benchmarks.training.fit_reader` writes its weights.

The lower layers are frozen, so their states are computed once. The loss is the marginal likelihood of the readings that
a label allows, as in `fit.py`. Needs the labelled data (shared/data) and the encoder (the extra `reader`); about ten
minutes on two cores.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn

from benchmarks.training.fit import Read, common_features, read
from benchmarks.training.labelled import Labelled, Redirect, all_labelled, redirects
from extract.model.loading import load_encoder
from extract.model.loading_options import quiet_libraries
from extract.progress import Reporter
from extract.shipped import READER, ROOT
from judging.reader_model import READINGS, ReaderModel, Reading
from scoring.judges.config import ReaderConfig
from scoring.judges.rules import RuleJudge
from scoring.judges.visible_text import text_to_judge

EPOCHS, BATCH, WARM_UP = 3, 32, 60
LEARNING_RATE, HEAD_FACTOR, DECAY, CLIP = 2e-4, 3.0, 0.01, 1.0
STRIDE = 3  # of the large sets whose labels are a machine's or all the same
LARGE = ("gemma-2b", "CoCoNot")
BATCH_READ = 64
RELEVANCE_C = 0.003  # inverse of the penalty on the relevance head's weights

MOST = 0.5  # a probability above it is a yes

Offer = Literal["useful", "irrelevant", "of another prompt"]
OFFERS: tuple[Offer, ...] = get_args(Offer)
States = list[Tensor]  # of each row: (token, width), in float16


def readings(row: Labelled) -> frozenset[Reading]:
    """Return the readings that a label allows; rebuttals are a reading of their own, which XSTest calls either."""
    if row.dataset == "Do-Not-Answer" and row.label == "1":
        return frozenset({"rebutted"})
    if (row.dataset == "XSTest" and row.label in "12") or row.label == "correct_premise":
        return frozenset({*row.outcomes, "rebutted"})
    return frozenset(row.outcomes)


def encoder_model(features: Sequence[str] = ()) -> ReaderModel:
    """Return an untrained reader on the default encoder."""
    encoder, tokenizer, _ = load_encoder(ReaderConfig().model)
    return ReaderModel(encoder, tokenizer, features)


def encode(rows: Sequence[Read], model: ReaderModel, say: Reporter) -> States:
    """Return the frozen layers' states of every row."""
    ids = [model.tokens(one.row.prompt, str(text_to_judge(one.row.completion, one.row.prompt)), {}).ids for one in rows]
    order = sorted(range(len(rows)), key=lambda i: len(ids[i]))
    found: dict[int, Tensor] = {}
    with say.task("frozen layers", len(rows)) as advance:
        for at in range(0, len(order), BATCH_READ):
            places = order[at : at + BATCH_READ]
            states, _ = model.states([ids[i] for i in places])
            found.update((i, states[k, : len(ids[i])].half().cpu()) for k, i in enumerate(places))
            advance(len(places))
    return [found[i] for i in range(len(rows))]


def thinned(rows: Sequence[Read]) -> list[int]:
    """Return the places of the rows to train on: those with a label and features, large sets in strides."""
    places = [i for i, one in enumerate(rows) if one.row.outcomes and one.features]
    large = [i for i in places if rows[i].row.dataset in LARGE]
    return sorted({*places} - {*large} | {*large[::STRIDE]})


def train(rows: Sequence[Read], states: States, places: Sequence[int], say: Reporter) -> ReaderModel:
    """Return a reader trained on the rows at `places`."""
    torch.manual_seed(0)
    model = encoder_model(common_features([rows[i] for i in places]))
    allowed = torch.tensor([[name in readings(one.row) for name in READINGS] for one in rows])
    weight = torch.tensor([one.row.weight for one in rows])
    groups = [
        {"params": model.trained.parameters(), "factor": 1.0},
        {"params": model.head.parameters(), "factor": HEAD_FACTOR},
    ]
    optimiser = torch.optim.AdamW(groups, weight_decay=DECAY)
    steps = EPOCHS * (len(places) // BATCH)
    model.trained.train()
    model.dropout.train()
    device = model.encoder.device
    with say.task("training", steps) as advance:
        for step, batch in enumerate(_batches(places)):
            for group in optimiser.param_groups:
                group["lr"] = LEARNING_RATE * group["factor"] * min(1, step / WARM_UP) * (1 - step / steps)
            hidden = nn.utils.rnn.pad_sequence([states[i].float() for i in batch], batch_first=True)
            lengths = torch.tensor([len(states[i]) for i in batch])
            there = torch.arange(hidden.shape[1]) < lengths[:, None]
            logits = model(hidden.to(device), there.to(device), [rows[i].features for i in batch]).cpu()
            chances = logits.log_softmax(dim=1).masked_fill(~allowed[batch], -torch.inf)
            loss = -(weight[batch] * chances.logsumexp(dim=1)).mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([*model.trained.parameters(), *model.head.parameters()], CLIP)
            optimiser.step()
            advance(1)
    return model.eval()


def _batches(places: Sequence[int]) -> Iterator[list[int]]:
    order, draw = list(places), random.Random(0)
    for _ in range(EPOCHS):
        draw.shuffle(order)
        edges = range(0, len(order) + 1, BATCH)
        yield from (order[start:end] for start, end in pairwise(edges))


def fit_relevance(rows: Sequence[Redirect], model: ReaderModel) -> None:
    """Fit the relevance head: useful redirects against irrelevant ones, and against those of other prompts.

    Without the exchanged ones, the head would learn what written irrelevant pivots are about, not that they are beside
    the request.
    """
    offers = [offer for offer in _offers(rows) if offer.text]
    X = model.similarity([offer.prompt for offer in offers], [offer.text for offer in offers]).cpu().numpy()
    useful = [offer.kind == "useful" for offer in offers]
    found = LogisticRegression(C=RELEVANCE_C, class_weight="balanced", max_iter=2000).fit(X, useful)
    with torch.no_grad():
        model.relevance.weight.copy_(torch.tensor(found.coef_))
        model.relevance.bias.copy_(torch.tensor(found.intercept_))


def relevance_unseen(rows: Sequence[Redirect], model: ReaderModel) -> Iterator[tuple[Offer, bool]]:
    """Yield each kind of offer, and whether a head fitted on nine tenths of the other rows calls it relevant."""
    for kept, held in StratifiedKFold(10, shuffle=True, random_state=0).split(rows, [row.useful for row in rows]):
        fit_relevance([rows[i] for i in kept], model)
        for offer in _offers([rows[i] for i in held]):
            yield offer.kind, bool(offer.text) and float(model.relevances([offer.prompt], [offer.text])) > MOST


@dataclass(frozen=True)
class _Offer:
    kind: Offer
    prompt: str
    text: str


def _offers(rows: Sequence[Redirect]) -> list[_Offer]:
    """Return what the rows offer; each useful offer comes again with the next one's prompt."""
    rules = RuleJudge()
    texts = [rules.read(row.completion, row.prompt).offered for row in rows]
    own = [
        _Offer("useful" if row.useful else "irrelevant", row.prompt, text)
        for row, text in zip(rows, texts, strict=True)
    ]
    useful = [offer for offer in own if offer.kind == "useful"]
    others = [*useful[1:], *useful[:1]]
    return own + [_Offer("of another prompt", b.prompt, a.text) for a, b in zip(useful, others, strict=True)]


def write() -> None:
    """Train on every set that permits it, and write the reader's weights."""
    quiet_libraries()
    say = Reporter()
    rows = read(all_labelled())
    rows = [rows[i] for i in thinned(rows)]
    states = encode(rows, encoder_model(), say)
    model = train(rows, states, range(len(rows)), say)
    fit_relevance(list(redirects()), model)
    model.save(ROOT / READER, Counter(one.row.dataset for one in rows))
    print(f"{(ROOT / READER).stat().st_size / 1e6:.1f} MB, trained on {len(rows)} rows")


if __name__ == "__main__":
    write()
