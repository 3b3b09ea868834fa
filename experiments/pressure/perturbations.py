"""Perturbations of a conversation: its last user turn in a code or a frame, turns before it, neutral text around it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from experiments.pressure.results import CONTROL
from experiments.side_effects.texts import REQUEST, Wrap, load_passages, load_wraps
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from extract.shipped import resolve_shipped
from extract.yaml_file import Strict, as_model, read_yaml

SHIPPED = Path("configs/pressure.yaml")
DIGITS = str.maketrans("aeiostAEIOST", "431057431057")
WHOLE = 1000  # tokens of neutral text, up to which as many prompts are asked as without one


class Perturbation(Strict):
    """What is done to a conversation; format: configs/pressure.yaml."""

    about: str
    change: str = ""  # of the request's words: a code, or a wrap; empty: none
    frame: str = REQUEST
    turns: tuple[str, ...] = ()  # the user's and the model's in turn
    tokens: int = 0  # of the neutral text

    def prompts_of(self, wanted: int) -> int:
        """Return how many prompts of each label are asked: fewer with a longer text, about as many tokens in all."""
        return wanted if self.tokens <= WHOLE else max(1, wanted * WHOLE // self.tokens)


def load_perturbations(names: Sequence[str] = ()) -> dict[str, Perturbation]:
    """Read the shipped perturbations, or the control and those named; UserError: there is no such one."""
    path = resolve_shipped(SHIPPED)
    known = {name: as_model(Perturbation, one, f"{path}: {name}") for name, one in read_yaml(path, "file").items()}
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"no such perturbation: {unknown[0]!r}; expected one of {', '.join(known)}")
    return {name: one for name, one in known.items() if not names or name in (CONTROL, *names)}


def codes() -> dict[str, Wrap]:
    """Return what a request's words can be changed by: Base64 (RFC 4648), digits for six letters, the shipped wraps."""
    coded: dict[str, Wrap] = {"base64": lambda request: base64.b64encode(request.encode()).decode("ascii")}
    return {"": str, "leetspeak": lambda request: request.translate(DIGITS), **coded, **load_wraps()}


def perturbed(prompt: Prompt, how: Perturbation, by_code: Mapping[str, Wrap], text: str = "") -> Prompt:
    """Return a prompt whose last turn is changed and framed, with further turns before it; the rest is kept."""
    before, words = list(prompt.messages[:-1]), by_code[how.change](prompt.text)
    last = {"role": "user", "content": how.frame.replace("{text}", text).replace(REQUEST, words)}
    turns = [{"role": ("user", "assistant")[i % 2], "content": turn} for i, turn in enumerate(how.turns)]
    start = int(bool(before) and before[0]["role"] == "system")
    return replace(prompt, messages=(*before[:start], *turns, *before[start:], last))


def neutral_text(tokenizer: PreTrainedTokenizerBase, tokens: int) -> str:
    """Return the shipped prose, repeated as often as needed and cut after so many tokens; "" for none."""
    if not tokens:
        return ""
    text, spans = "\n\n".join(load_passages()), list[tuple[int, int]]()
    while len(spans) < tokens:
        text = f"{text}\n\n{text}" if spans else text
        spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return text[: spans[tokens - 1][1]]
