"""From a conversation to tokens and their roles, through the tokenizer's own chat template and offsets.

No template is written by hand per model family: the user's last words are where a stand-in for them comes out of the
template, so injected system prompts, trimmed content, thinking openings and words that recur need no special case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from transformers import PreTrainedTokenizerBase

from extract.errors import UserError
from extract.prompts import Prompt

PINNED_DATE = date(2024, 7, 26)  # templates that print today's date would make activations differ from day to day
STAND_IN = "StandInForTheUsersWords5f0c1e"  # goes through a template in the place of the last user turn


@dataclass(frozen=True)
class Rendered:
    """One tokenised prompt and where its roles stand.

    `roles` maps a position name to token indices; `inst_mean` is the mean over its indices, the others hold one.
    """

    text: str
    token_ids: tuple[int, ...]
    roles: dict[str, tuple[int, ...]]
    ambiguous: bool  # a token covers both the end of the instruction and the template after it


def render(tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> Rendered:
    """Tokenise a prompt with its chat template and find its token roles.

    Raises:
        UserError: the tokenizer has no chat template, or the template drops or rewrites the user's words.
    """
    text = template(tokenizer, prompt.messages)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    offsets: list[tuple[int, int]] = [(int(a), int(b)) for a, b in encoded["offset_mapping"]]
    start, end = _span(tokenizer, prompt, text)
    inside = tuple(i for i, (a, b) in enumerate(offsets) if a < end and b > start and b > a)
    if not inside:
        raise UserError(f"prompt {prompt.id!r}: no token stands for the user's words after the chat template")
    roles = {"inst_last": inside[-1:], "inst_mean": inside, **_template_roles(inside[-1], len(offsets))}
    if prompt.trigger:
        roles |= _trigger_role(text[start:end], start, prompt.trigger, offsets)
    return Rendered(text, tuple(encoded["input_ids"]), roles, ambiguous=offsets[inside[-1]][1] > end)


def template(tokenizer: PreTrainedTokenizerBase, messages: Sequence[dict[str, str]]) -> str:
    """Apply the tokenizer's chat template, ready for the assistant's turn."""
    if not tokenizer.chat_template:
        raise UserError(
            f"{tokenizer.name_or_path or 'the model'} has no chat template: its tokenizer cannot format a "
            "conversation; choose a chat (instruct) model, or add a chat_template to its tokenizer_config.json"
        )
    try:
        return str(
            tokenizer.apply_chat_template(
                list(messages),
                tokenize=False,
                add_generation_prompt=True,
                chat_template=_dated(tokenizer.get_chat_template()),
                date_string=PINNED_DATE.strftime("%d %b %Y"),
            )
        )
    except Exception as error:  # jinja raises whatever the template's author wrote
        raise UserError(f"the chat template of {tokenizer.name_or_path} refused a conversation: {error}") from error


def _dated(chat_template: str) -> str:
    """Give the pinned date to a template that asks for today's (transformers takes no function as an argument)."""
    if "strftime_now" not in chat_template:
        return chat_template
    fields = "".join(f" | replace('%{code}', '{PINNED_DATE.strftime('%' + code)}')" for code in "aAbBdHIjmMpSyY")
    return "{% macro strftime_now(format) %}{{ format" + fields + " }}{% endmacro %}{{ '' }}" + chat_template


def position_names(rendered: Sequence[Rendered], *, trigger: bool = False) -> tuple[str, ...]:
    """Name every position some prompt has: inst_last, the template tokens after it, inst_mean."""
    seen = {name for one in rendered for name in one.roles}
    numbered = sorted((n for n in seen if n.startswith("post_") and n != "post_last"), key=lambda n: int(n[5:]))
    names = ["inst_last", *numbered, *(["post_last"] if "post_last" in seen else []), "inst_mean"]
    return tuple(names + (["trigger_last"] if trigger and "trigger_last" in seen else []))


def _span(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, text: str) -> tuple[int, int]:
    marked = template(tokenizer, (*prompt.messages[:-1], {"role": "user", "content": STAND_IN}))
    before = marked.split(STAND_IN)[:-1]
    said = prompt.text
    for content in (said, said.strip(), said.lstrip(), said.rstrip()) if before else ():
        start = len(content.join(before))
        if text.startswith(content.join([*before, ""])):
            return start, start + len(content)
    raise UserError(f"prompt {prompt.id!r}: the chat template does not keep the user's words as they are")


def _template_roles(inst_last: int, n_tokens: int) -> dict[str, tuple[int, ...]]:
    after = range(inst_last + 1, n_tokens)
    roles: dict[str, tuple[int, ...]] = {f"post_{k}": (index,) for k, index in enumerate(after[:-1], start=1)}
    return roles | ({"post_last": (n_tokens - 1,)} if after else {})


def _trigger_role(content: str, start: int, trigger: str, offsets: list[tuple[int, int]]) -> dict[str, tuple[int, ...]]:
    found = re.search(rf"(?<!\w){re.escape(trigger)}(?!\w)", content, flags=re.IGNORECASE)
    if found is None:
        return {}
    begin, end = start + found.start(), start + found.end()
    covering = [i for i, (a, b) in enumerate(offsets) if a < end and b > begin and b > a]
    return {"trigger_last": (covering[-1],)} if covering else {}
