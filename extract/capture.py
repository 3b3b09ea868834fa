"""Captures the residual streams of one shard: forward passes on the device, copies to the host in the background."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from extract.background import BackgroundThread
from extract.backoff import TokenBudget, widened
from extract.capture_spec import THOUGHT, CaptureSpec, ResolvedSpec
from extract.chat.render import Rendered, position_names
from extract.chat.thinking import answer_start, reopened, thought_tokens
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.continuation import CachedPrefix, cache_prefix, decode_cached, try_cache_prompts
from extract.model.decoding import cut_at_end
from extract.model.kept_prompts import KeptPrompts
from extract.model.padded_batch import Batch
from extract.store.shards import CapturedShard

CACHED_TOKENS = 4  # of a shared prefix and its rows, at most, for each token of the budget
MIN_PREFIX = 4  # shared tokens; fewer do not pay for an explicit attention mask
MIN_SAVED = 1024  # tokens that a prefix of some prompts saves; fewer do not pay for batches of their own


def resolved(spec: CaptureSpec, model: ChatModel, rendered: Sequence[Rendered]) -> ResolvedSpec:
    """Return what is captured of a model and these prompts; UserError if a layer or position is unknown."""
    layers = tuple(range(model.n_layers)) if spec.layers is None else tuple(sorted(set(spec.layers)))
    known = position_names(rendered)
    positions = known if spec.positions is None else tuple(dict.fromkeys(spec.positions))
    if not layers:
        raise UserError("extract.layers is empty; name layers, or leave it out for all layers")
    if beyond := [layer for layer in layers if not 0 <= layer < model.n_layers]:
        raise UserError(f"layer {beyond[0]} does not exist: {model.name} has layers 0 to {model.n_layers - 1}")
    if not positions:
        raise UserError("extract.positions is empty; name positions, or leave it out for all positions")
    if not {*positions} <= {*known}:
        choices = dict.fromkeys([*known, *(name for row in rendered for name in row.roles)])  # those of responses, too
        if unknown := [name for name in positions if name not in choices]:
            raise UserError(f"no prompt has the position {unknown[0]!r}; choose from {', '.join(choices)}")
    dtype = str(model.dtype).removeprefix("torch.") if spec.store_dtype == "auto" else spec.store_dtype
    return ResolvedSpec(**spec.model_dump() | {"layers": layers, "positions": positions, "dtype": dtype})


@dataclass(frozen=True)
class Capturer:
    """Captures the residual stream of rendered prompts."""

    model: ChatModel
    spec: ResolvedSpec
    budget: TokenBudget
    background: BackgroundThread
    prefixes: Sequence[CachedPrefix] = ()  # the longest first
    advance: Callable[[int], None] = field(default=lambda rows: None)
    kept: KeptPrompts | None = None  # takes the keys and values of the prompts that it wants

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.spec.dtype)
        return dtype

    def capture(self, rendered: Sequence[Rendered], said: Sequence[Sequence[int]] | None = None) -> CapturedShard:
        """Capture rows; values are complete after all tasks of `background`, and zero at absent positions.

        `said`: their greedy responses, where these are captured, too; None: they are generated.
        """
        spec = self.spec
        names = spec.all_positions
        values = torch.zeros(len(spec.layers), len(names), len(rendered), self.model.d_model, dtype=self.dtype)
        responses: list[tuple[int, ...]] = []
        if spec.generated:
            responses = [tuple(tokens[: spec.generated]) for tokens in said or self._generated(rendered)]
            rendered = [self._with_response(*each) for each in zip(rendered, responses, strict=True)]
        present = np.array([[bool(row.roles.get(name)) for row in rendered] for name in names], dtype=bool)

        def work(index: list[int], prefix: CachedPrefix | None) -> None:
            picked = self._reading([rendered[i] for i in index], names, prefix)
            self.background.submit(_place, values, index, *_to_host(picked))
            self.advance(len(index))

        by_prefix = defaultdict[CachedPrefix | None, list[int]](list)
        for i, row in enumerate(rendered):
            by_prefix[self._prefix(row)].append(i)
        for prefix, own in by_prefix.items():
            tokens = [self._tokens(rendered[i], prefix) for i in own]
            self.budget.run(tokens, lambda at, own=own, prefix=prefix: work([own[i] for i in at], prefix))  # type: ignore[misc]
        return CapturedShard(values, present, tuple(responses))

    def _prefix(self, row: Rendered) -> CachedPrefix | None:
        """Return the longest cached prefix that ends before the first captured token."""
        head = _head(row, self.spec.positions)
        return next((p for p in self.prefixes if head[: len(p.token_ids)] == p.token_ids), None)

    def _tokens(self, row: Rendered, prefix: CachedPrefix | None) -> int:
        """Return the tokens that a row takes of the budget: those that are read, or a share of all that are cached."""
        skipped = len(prefix.token_ids) if prefix else 0
        read = len(row.token_ids) - skipped
        return max(read, -(-(skipped + read) // CACHED_TOKENS)) if skipped else read

    def _empty(self, n_rows: int) -> Tensor:
        shape = (len(self.spec.layers), len(self.spec.all_positions), n_rows, self.model.d_model)
        return torch.zeros(shape, dtype=self.dtype, device=self.model.device)

    def _reading(self, rows: Sequence[Rendered], positions: Sequence[str], prefix: CachedPrefix | None) -> Tensor:
        spec, skipped = self.spec, len(prefix.token_ids) if prefix else 0
        batch = self.model.pad([row.token_ids[skipped:] for row in rows], "right")
        if len(rows) == 1 and not skipped:  # edits of open blocks count tokens from the prompt's own end
            batch = replace(batch, prompt_length=rows[0].roles.get("response_1", (batch.prompt_length,))[0])
        pick, picked = gather(rows, positions, batch, skipped), self._empty(len(rows))

        def keep(layer: int, stream: Tensor) -> None:
            picked[spec.layers.index(layer)] = pick(stream).to(self.dtype)

        kept, before = self.kept, [tuple(row.token_ids[:-1]) for row in rows]
        keeps = kept is not None and not self.model.edits and any(map(kept.wants, before))
        past = prefix.copies(len(rows)) if prefix else None
        past = self.model.capture(batch, spec.site, spec.layers, keep, past, every_layer=keeps)
        if kept is not None and keeps:
            kept.keep(before, past, [0] * len(rows), skipped)
        return picked

    def _generated(self, rendered: Sequence[Rendered]) -> list[list[int]]:
        model, most = self.model, self.spec.generated

        def responses(at: list[int]) -> list[list[int]]:
            batch = model.batch([rendered[i] for i in at])
            if (cached := try_cache_prompts(model, batch)) is None:  # a state that may be wrong in padded rows, too
                return model.generate(batch, most, use_cache=False)
            return [cut_at_end(tokens, model.eos_ids) for tokens in decode_cached(model, cached, most)]

        return self.budget.map([len(row.token_ids) + most for row in rendered], responses)

    def _with_response(self, row: Rendered, tokens: tuple[int, ...]) -> Rendered:
        """Return a prompt with what is captured of its response."""
        n, pieces, opened = len(row.token_ids), self.model.pieces(tokens), bool(reopened(row.text, ""))
        ends = thought_places(thought_tokens(pieces, opened), answer_start(pieces, opened))
        ends |= {f"response_{k + 1}": k for k in range(min(self.spec.response_tokens, len(tokens)))}
        read = tokens[: max(ends.values(), default=-1) + 1]
        roles = dict(row.roles) | {name: (n + at,) for name, at in ends.items()}
        return replace(row, token_ids=(*row.token_ids, *read), roles=roles)


def thought_places(thought: range, answer: int) -> dict[str, int]:
    """Return the tokens of a response at the positions of `THOUGHT`: those there are; {} without a closed thought."""
    if not thought:
        return {}
    tenths = (thought[round(k * (len(thought) - 1) / 10)] for k in range(11))
    return dict(zip(THOUGHT, [*tenths, *([answer - 1, answer] if answer else [])], strict=False))


def shared_prefixes(model: ChatModel, rendered: Sequence[Rendered], spec: ResolvedSpec) -> tuple[CachedPrefix, ...]:
    """Cache what prompts share before their first captured position, the longest first; () if nothing is reusable."""
    rope = getattr(model.model.config.get_text_config(), "rope_parameters", None) or {}
    if rope.get("rope_type") in ("longrope", "dynamic"):  # their frequencies depend on the length of the pass
        return ()
    if model.backend != "hooks":
        return ()
    heads = [_head(row, spec.positions) for row in rendered]
    cached = (
        _cached(model, [row for row, head in zip(rendered, heads, strict=True) if head[: len(ids)] == ids], ids, spec)
        for ids in worthwhile_prefixes(heads)
    )
    return tuple(prefix for prefix in cached if prefix is not None)


def _head(row: Rendered, positions: Sequence[str]) -> tuple[int, ...]:
    """Return the tokens before the first captured one; all but the last if none is captured."""
    first = min((min(tokens) for name in positions if (tokens := row.roles.get(name))), default=len(row.token_ids) - 1)
    return tuple(row.token_ids[:first])


def tokens_to_read(rendered: Sequence[Rendered], spec: CaptureSpec) -> int:
    """Return the tokens that capturing these prompts computes, where the model can go on from what they share."""
    positions = spec.positions or position_names(rendered)
    heads = [_head(row, positions) for row in rendered]
    prefixes = [] if spec.generated else worthwhile_prefixes(heads)
    shared = (next((len(prefix) for prefix in prefixes if head[: len(prefix)] == prefix), 0) for head in heads)
    return sum(len(row.token_ids) - n for row, n in zip(rendered, shared, strict=True)) + sum(map(len, prefixes))


def worthwhile_prefixes(heads: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the beginnings that save enough tokens if computed once, the longest first: of all heads, or of some."""
    heads = sorted(heads)
    skipped, chosen = [0] * len(heads), list[tuple[int, ...]]()
    common = {
        tuple(a for a, _ in takewhile(lambda both: both[0] == both[1], zip(*two, strict=False)))
        for two in pairwise(heads)
    }
    for prefix in sorted((prefix for prefix in common if len(prefix) >= MIN_PREFIX), key=len):
        own = slice(bisect_left(heads, prefix), bisect_left(heads, (*prefix[:-1], prefix[-1] + 1)))
        saved = sum(len(prefix) - before for before in skipped[own]) - len(prefix)
        if saved >= (1 if own == slice(0, len(heads)) else MIN_SAVED):
            skipped[own] = [len(prefix)] * (own.stop - own.start)
            chosen.insert(0, prefix)
    return chosen


def _cached(
    model: ChatModel, rows: Sequence[Rendered], token_ids: tuple[int, ...], spec: ResolvedSpec
) -> CachedPrefix | None:
    """Cache a prefix of some rows; None if they do not go on from it as whole rows do."""
    try:
        prefix = cache_prefix(model, token_ids)
        longest = max(rows, key=lambda row: len(row.token_ids))
        return prefix if _holds(model, (rows[0], longest), prefix, spec) else None
    except (AttributeError, RuntimeError, TypeError, ValueError):
        # the cache cannot be copied for several rows, or memory ran out; other faults recur with whole prompts
        return None


def _holds(model: ChatModel, rows: tuple[Rendered, Rendered], prefix: CachedPrefix, spec: ResolvedSpec) -> bool:
    """Compare two rows continued together from the prefix with each full row alone; some caches serve only one row."""
    streams: list[Tensor] = []

    def read(some: Sequence[Rendered], known: CachedPrefix | None) -> list[Tensor]:
        skipped = len(known.token_ids) if known else 0
        batch = model.pad([row.token_ids[skipped:] for row in some], "right")
        past = known.copies(len(some)) if known else None
        model.capture(batch, spec.site, spec.layers[-1:], lambda _, s: streams.append(widened(s)), past)
        stream, start = streams.pop(), len(prefix.token_ids) - skipped
        return [stream[i, start : len(row.token_ids) - skipped] for i, row in enumerate(some)]

    after, whole = read(rows, prefix), [read([row], None)[0] for row in rows]
    tolerance = 1e-4 if model.dtype == torch.float32 else 5e-2
    return all(
        bool(((a - w).norm(dim=-1) <= tolerance * w.norm(dim=-1)).all()) for a, w in zip(after, whole, strict=True)
    )


def _to_host(picked: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """Start a copy to the host; the event marks its end."""
    if picked.device.type != "cuda":
        return picked.cpu(), None
    host = torch.empty(picked.shape, dtype=picked.dtype, pin_memory=True)
    host.copy_(picked, non_blocking=True)
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(picked.device))
    return host, done


def _place(values: Tensor, index: list[int], host: Tensor, done: torch.cuda.Event | None) -> None:
    if done is not None:
        done.synchronize()
    values[:, :, index] = host


def gather(
    rows: Sequence[Rendered], positions: Sequence[str], batch: Batch, skipped: int = 0
) -> Callable[[Float[Tensor, "rows time d_model"]], Float[Tensor, "positions rows d_model"]]:
    """Return a function of the stream that picks the positions, in float32, with indices prepared once for all layers.

    A position is one token, or a mean over tokens without padding; absent ones are zero. The first `skipped` tokens of
    every row (a shared prefix) are not in the batch.
    """
    where = [[row.roles.get(name, ()) for name in positions] for row in rows]
    first = [pad - skipped for pad in batch.n_pad.tolist()]
    own = batch.tokens.device
    single = [[cell[0] + start if cell else 0 for cell in cells] for cells, start in zip(where, first, strict=True)]
    tokens = torch.tensor(single, device=own)
    present = torch.tensor([[bool(cell) for cell in cells] for cells in where]).to(own)
    means: dict[int, tuple[Int[Tensor, "rows tokens"], Bool[Tensor, "rows tokens"]]] = {}
    for position in range(len(positions)):
        cells = [cells[position] for cells in where]
        longest = max(map(len, cells), default=0)
        if longest > 1:
            shifted = [[t + start for t in cell] for cell, start in zip(cells, first, strict=True)]
            index = [[*cell, *[0] * (longest - len(cell))] for cell in shifted]
            member = [[True] * len(cell) + [False] * (longest - len(cell)) for cell in cells]
            means[position] = torch.tensor(index, device=own), torch.tensor(member, device=own)

    def pick(stream: Tensor) -> Tensor:
        device = stream.device  # in a model spread over several devices it differs between layers
        row = torch.arange(len(stream), device=device)[:, None]
        picked = torch.where(present.to(device)[:, :, None], stream[row, tokens.to(device)].float(), 0.0)
        for position, (index, member) in means.items():
            index, member = index.to(device), member.to(device)
            summed = torch.where(member[:, :, None], stream[row, index].float(), 0.0).sum(dim=1)
            picked[:, position] = summed / member.sum(dim=1, keepdim=True).clamp(min=1)
        return rearrange(picked, "row position d -> position row d")

    return pick
