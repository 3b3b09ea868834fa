"""Rendering: turns a conversation into tokens and their roles, with the tokenizer's own chat template and offsets.

Control tokens that a user writes as text (`<|im_end|>`) become control tokens, as in transformers by default; they
still count as part of the user's words.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from transformers import BatchEncoding, PreTrainedTokenizerBase

from extract.capture_spec import THOUGHT_END
from extract.chat.template import apply_template
from extract.errors import UserError
from extract.prompts.prompt import Prompt

NO_TOKENS = range(0)
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # of bytes that are no character
_MOST_UNFINISHED = 60  # tokens, where only such marks follow each other; a multiple of the bytes of a character


class Roles(Mapping[str, Sequence[int]]):
    """Token indices by position name, computed on access to save memory for many prompts.

    `inst_mean` is the mean over its indices, without the prompt's first token if it has others: its activations may be
    thousands of times larger and say nothing (Sun et al., arXiv 2402.17762). The other positions hold one index.
    """

    __slots__ = ("_n_tokens", "_trigger", "_words")

    def __init__(self, words: range, n_tokens: int, trigger: int | None = None) -> None:
        self._words = words
        self._n_tokens = n_tokens
        self._trigger = trigger

    def __getitem__(self, name: str) -> Sequence[int]:
        last = self._words[-1]
        if name == "inst_mean":
            return self._words[1:] if self._words[0] == 0 and len(self._words) > 1 else self._words
        if name == "inst_last":
            return (last,)
        if name == "post_last" and last + 1 < self._n_tokens:
            return (self._n_tokens - 1,)
        if name == "trigger_last" and self._trigger is not None:
            return (self._trigger,)
        k = name.removeprefix("post_")
        if k != name and k.isdecimal() and name == f"post_{int(k)}" and last < last + int(k) < self._n_tokens - 1:
            return (last + int(k),)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        n_after = self._n_tokens - 1 - self._words[-1]
        yield "inst_last"
        yield from (f"post_{k}" for k in range(1, n_after))
        yield from ["post_last"] if n_after else []
        yield "inst_mean"
        yield from [] if self._trigger is None else ["trigger_last"]

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class Rendered:
    """One tokenised prompt and the token indices of its roles."""

    text: str
    token_ids: Sequence[int]
    roles: Mapping[str, Sequence[int]]
    ambiguous: bool  # a token covers both the end of the instruction and the template after it
    altered: bool = False  # the template changed the user's words, not only blanks at their ends
    trigger: range = NO_TOKENS  # tokens of the trigger word; empty if the last turn does not contain it
    instruction: range = NO_TOKENS  # tokens of the last turn

    def thinking(self, thought: Sequence[int]) -> Rendered:
        """Return the prompt followed by its thought, marks and all: what an answer follows."""
        ids = array("i", [*self.token_ids, *thought])
        return replace(self, token_ids=ids, roles={**self.roles, THOUGHT_END: (len(ids) - 1,)})


def render(tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> Rendered:
    """Tokenise a prompt with its chat template and find its token roles.

    The instruction is the user's last turn as the template writes it, with the blanks at its ends. Raises UserError,
    naming the prompt, if there is no template, it refuses the conversation, or the words are not found in its text.
    """

    def show(words: str) -> str:
        return apply_template(tokenizer, (*prompt.messages[:-1], {"role": "user", "content": words}))

    try:
        text = show(prompt.text)
        start, end = find_words(show, prompt.text, text)
    except UserError as error:
        raise UserError(f"prompt {prompt.id!r}: {error}") from error
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    spans = _spans(tokenizer, encoded)
    words = _covering(spans, start, end)
    if not words:
        raise UserError(f"prompt {prompt.id!r}: no token covers the user's words after the chat template")
    trigger = _trigger(prompt.trigger, text[start:end], start, spans) if prompt.trigger else NO_TOKENS
    return Rendered(
        text,
        array("i", encoded["input_ids"]),
        Roles(words, len(spans), trigger[-1] if trigger else None),
        ambiguous=spans[words[-1]][1] > end,
        altered=text[start:end].strip() != prompt.text.strip(),
        trigger=trigger,
        instruction=words,
    )


def token_texts(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> list[str]:
    """Return the text of each token; a character of several tokens is the text of the one that completes it."""
    alone = {i: str(tokenizer.decode([i])) for i in set(token_ids)}
    texts: list[str] = []
    unfinished: list[int] = []  # tokens since the last complete character
    whole, given = "", 0  # their text, and how much of it `texts` has

    def end_character() -> None:
        nonlocal given
        if unfinished:
            texts[-1] += whole[given:]
            given = 0
            unfinished.clear()

    for i in token_ids:
        if _INCOMPLETE not in alone[i]:
            end_character()
            texts.append(alone[i])
            continue
        unfinished.append(i)
        whole = str(tokenizer.decode(unfinished))
        complete = max(given, len(whole.rstrip(_INCOMPLETE)))
        texts.append(whole[given:complete])
        given = complete
        if complete == len(whole) or len(unfinished) == _MOST_UNFINISHED:
            end_character()
    end_character()
    return texts


def position_names(rendered: Sequence[Rendered]) -> tuple[str, ...]:
    """Return every position that some prompt has: inst_last, the template tokens after it, inst_mean, trigger_last."""
    seen = {name for row in rendered for name in row.roles}
    numbered = sorted((n for n in seen if re.fullmatch("post_[0-9]+", n)), key=lambda n: int(n[5:]))
    order = ("inst_last", *numbered, "post_last", "inst_mean", "trigger_last")
    return tuple(name for name in order if name in seen)


def refuse_too_long(prompts: Sequence[Prompt], rendered: Sequence[Rendered], context: int | None) -> None:
    """Raise UserError, naming the longest prompt, if the model cannot read a whole prompt; None: not known."""
    long = [
        (len(row.token_ids), prompt.id)
        for prompt, row in zip(prompts, rendered, strict=True)
        if context and len(row.token_ids) > context
    ]
    if long:
        tokens, name = max(long)
        raise UserError(
            f"{len(long)} of {len(prompts)} prompts are longer than the model's context, {context:,} "
            f"tokens; {name!r} has {tokens:,}. Shorten them or leave them out"
        )


def remarks(prompts: Sequence[Prompt], rendered: Sequence[Rendered], *, merged: bool = False) -> list[str]:
    """Return notes on the positions of these prompts, one line each; `merged`: system messages are in user turns."""
    pairs = list(zip(prompts, rendered, strict=True))
    faults = {
        "the last token of the instruction also covers template text after it (inst_last is ambiguous)": [
            prompt.id for prompt, row in pairs if row.ambiguous
        ],
        "the chat template alters the user's words": [prompt.id for prompt, row in pairs if row.altered],
        "the template writes nothing after the instruction (no post_last)": [
            prompt.id for prompt, row in pairs if "post_last" not in row.roles
        ],
        "the trigger is not a word of the last user turn (no trigger_last)": [
            prompt.id for prompt, row in pairs if prompt.trigger and "trigger_last" not in row.roles
        ],
        "the system message is at the start of the next user turn (model.system: merge)": [
            prompt.id for prompt in prompts if merged and any(m["role"] == "system" for m in prompt.messages)
        ],
    }
    return [
        f"{len(ids)} of {len(pairs)} prompts: {what}, for example {ids[0]!r}" for what, ids in faults.items() if ids
    ]


def _spans(tokenizer: PreTrainedTokenizerBase, encoded: BatchEncoding) -> list[Span]:
    """Return each token's characters, including blanks that some tokenizers trim from their offsets."""
    offsets: list[Span] = encoded["offset_mapping"]
    if "trim_offsets=True" not in str(tokenizer.backend_tokenizer.post_processor):
        return offsets
    spans: list[Span] = []
    for token, (start, end) in zip(encoded.tokens(), offsets, strict=True):
        leading = len(token) - len(token.lstrip("Ġ"))
        trailing = len(token) - leading - len(token.strip("Ġ"))
        spans.append((start - leading, end + trailing))
    return spans


def _covering(spans: Sequence[Span], start: int, end: int) -> range:
    inside = [i for i, (a, b) in enumerate(spans) if a < end and b > start]
    return range(inside[0], inside[-1] + 1) if inside else NO_TOKENS


def _trigger(trigger: str, words: str, start: int, spans: Sequence[Span]) -> range:
    match = re.search(rf"(?<!\w){re.escape(trigger)}(?!\w)", words, flags=re.IGNORECASE)
    return _covering(spans, start + match.start(), start + match.end()) if match else NO_TOKENS


Show = Callable[[str], str]
Span = tuple[int, int]
PRIVATE_USE = range(0xE000, 0xF900)  # single characters, which filters of case, order and length do not change
LETTERS = ("Zqxjvk", "Vkwqzj")  # for templates that escape or drop what is not ASCII


def find_words(show: Show, words: str, text: str) -> Span:
    """Return start and end of the user's words in `text`, which is `show(words)`; of the last of several copies.

    Raises UserError if the template drops the words, or writes text around them that depends on them.
    """
    around, left, right = _pass_through(show, words + text)
    bounds = _bounded(around, text)
    if bounds and text[slice(*bounds)].strip() == words.strip():
        return bounds
    marked = re.split(f"({left}|{right})", show(left + words + right))
    kept = marked[1::2] == [left, right]
    span = _last_copy(around, words, text)
    if kept and span is None:  # words between two marks count if they equal those without, but for blanks and case
        before, _, inside, _, after = marked
        unmarked = _bounded((before, after), text)
        if unmarked and _letters(text[slice(*unmarked)]) == _letters(inside):
            span = unmarked
    span = span or _only_copy(around, words, text, bounds) or (None if kept else bounds)
    if span is None:
        raise UserError(
            "the chat template writes text around the user's words that depends on them, so their position "
            "cannot be found; use another template (model.template)"
        )
    return span


def _pass_through(show: Show, used: str) -> tuple[list[str], str, str]:
    """Return the text before, between and after the copies of a placeholder, and two marks that are rendered alike."""
    unused = tuple(islice((chr(code) for code in PRIVATE_USE if chr(code) not in used), 2))
    for left, right in (unused, LETTERS) if len(unused) == 2 else (LETTERS,):
        around = re.split(left, show(left), flags=re.IGNORECASE)
        if len(around) > 1:
            return around, left, right
    raise UserError("the chat template drops the user's words; use another template (model.template)")


def _bounded(around: Sequence[str], text: str) -> Span | None:
    """Return the last of equal copies inside the text around a placeholder."""
    length = (len(text) - sum(map(len, around))) // (len(around) - 1)
    start = len(text) - len(around[-1]) - length
    return (start, start + length) if text[start : start + length].join(around) == text else None


def _last_copy(around: Sequence[str], words: str, text: str) -> Span | None:
    """Return the last of several copies, if only the earlier ones were altered (for example a title)."""
    for kept in (words, words.strip()):
        if len(around) > 2 and text.endswith(around[-2] + kept + around[-1]):
            end = len(text) - len(around[-1])
            return end - len(kept), end
    return None


def _only_copy(around: Sequence[str], words: str, text: str, bounds: Span | None) -> Span | None:
    """Return the only place of the words, ignoring letter case, if the template wrote extra text because of them."""
    start, end = bounds or (0, len(text))
    for kept in (words, words.strip()):
        pattern = re.compile(f"(?={re.escape(kept)})", re.IGNORECASE)
        starts = [start + place.start() for place in pattern.finditer(text[start:end])]
        if len(starts) == 1 and (bounds or not any(map(pattern.search, around))):
            return starts[0], starts[0] + len(kept)
    return None


def _letters(text: str) -> str:
    """Remove what a mark may change next to it: blanks and letter case."""
    return "".join(text.split()).casefold()
