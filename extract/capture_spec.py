"""What is captured of every prompt: the argument of every capture, and a section of a run's configuration.

Imports no torch, so that a configuration is read at once.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from extract.yaml_file import Strict

Site = Literal["resid_pre", "resid_mid", "resid_post"]  # a block's input, between attention and MLP, its output
SITES: tuple[str, ...] = get_args(Site)
# Tokens of a thought, without its marks: the first, those after each tenth of it, the last; then the last token before
# the answer, a mark or the blank after it; and the answer's first.
WITHIN_THOUGHT = ("think_first", *(f"think_{percent}" for percent in range(10, 100, 10)), "think_last", "think_end")
THOUGHT, THOUGHT_END = (*WITHIN_THOUGHT, "answer_first"), WITHIN_THOUGHT[-1]


def is_generated(position: str) -> bool:
    """Return whether a position is of what the model says, so that nothing can be read there before it speaks."""
    return position in THOUGHT or position.startswith("response_")


class CaptureSpec(Strict):
    """Which activations are captured."""

    site: Site = "resid_post"
    layers: tuple[int, ...] | None = None  # null: all
    positions: tuple[str, ...] | None = None  # null: every position that some prompt has
    response_tokens: int = Field(0, ge=0)  # k: also store response_1 … response_k, of the answer, which is read again
    thought_tokens: int = Field(0, ge=0)  # n: also store THOUGHT, of thoughts of at most n tokens
    store_dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"  # auto: as the model computes
    token_budget: int | None = Field(None, ge=1)  # tokens in a batch: 1024 on a CPU, 16384 on a GPU
    rows_per_shard: int | None = Field(None, ge=1)  # as many as make 256 MB, at most 512

    @property
    def generated(self) -> int:
        """The response tokens that are generated."""
        return max(self.response_tokens, self.thought_tokens)


EVERYTHING = CaptureSpec()


class ResolvedSpec(CaptureSpec):
    """A capture of one model and its prompts: every layer, position and type is named."""

    layers: tuple[int, ...]
    positions: tuple[str, ...]  # of the prompt
    dtype: str  # of the captured values, by torch's name

    @property
    def all_positions(self) -> tuple[str, ...]:
        """Every position of the store: those of the prompt, of a thought, and of the response."""
        response = (f"response_{k}" for k in range(1, self.response_tokens + 1))
        return (*self.positions, *(THOUGHT if self.thought_tokens else ()), *response)
