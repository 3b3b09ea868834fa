"""Chat templates: choosing one, setting its arguments, applying it to a conversation, and its identity.

A tokenizer's own template is used as it is. A base model has none: its conversations are then written in a format the
user chose by name (`plain`) or wrote (a `.jinja` file); no format is ever chosen silently.

A template's own arguments (`enable_thinking`) and what becomes of system messages are written into its source, as
Jinja statements before its first line. So no call can forget them, and the template's hash differs with them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

import jinja2
from pydantic import JsonValue
from transformers import PreTrainedTokenizerBase

from extract.errors import UserError

Arguments = Mapping[str, JsonValue]  # of a template, by name
System = Literal["keep", "merge"]
GIVEN_ALREADY = ("messages", "add_generation_prompt")

PINNED_DATE = date(2024, 7, 26)  # templates that print today's date would make activations differ from day to day
# What base models have read most: a text, then questions and answers. It says nothing a prompt does not, ends without
# a blank (their next token brings its own), and inst_last is the question's last token, post_last the last colon.
PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] | trim + '\\n\\n' }}"
    "{% elif message['role'] == 'user' %}{{ 'Question: ' + message['content'] | trim + '\\n' }}"
    "{% else %}{{ 'Answer: ' + message['content'] | trim + '\\n\\n' }}{% endif %}"
    "{% endfor %}{{ 'Answer:' }}"
)
# Text of a system message goes before the next user turn's, a blank line between them.
_MERGING = (
    "{% set merging = namespace(system='', turns=[]) %}"
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{% set merging.system = merging.system + message['content'] | trim + '\\n\\n' %}"
    "{% elif message['role'] == 'user' %}"
    "{% set merging.turns = merging.turns + [{'role': 'user', 'content': merging.system + message['content']}] %}"
    "{% set merging.system = '' %}"
    "{% else %}{% set merging.turns = merging.turns + [message] %}{% endif %}{% endfor %}"
    "{% set messages = merging.turns %}"
)


def choose_template(
    tokenizer: PreTrainedTokenizerBase,
    wanted: str | None,
    arguments: Arguments | None = None,
    system: System = "keep",
) -> str | dict[str, str]:
    """Return the template to speak to a model with: its own (None), `plain`, or what a file holds.

    Args:
        arguments: what the template reads besides the messages, such as `{"enable_thinking": False}`: set for good.
        system: `merge` puts system messages at the head of the next user turn, for templates that refuse them.

    Raises:
        UserError: the model has no template of its own, the file is missing or not a Jinja template, or the template
            does not read an argument.
    """
    chosen = _chosen(tokenizer, wanted)
    sources = chosen if isinstance(chosen, dict) else {"default": chosen}  # some tokenizers hold several by name
    _check_arguments(arguments or {}, list(sources.values()), wanted or tokenizer.name_or_path)
    settled = {name: _with_settings(source, arguments or {}, system) for name, source in sources.items()}
    return settled if isinstance(chosen, dict) else settled["default"]


def _with_settings(source: str, arguments: Arguments, system: System) -> str:
    """Return a template that is always given these arguments, and system messages in this way.

    Args:
        system: `keep` hands them to the template; `merge` puts them at the head of the user turn that follows.
    """
    setting = "".join(f"{{% set {name} = {value!r} %}}" for name, value in arguments.items())
    before = setting + (_MERGING if system == "merge" else "")
    return f"{before}\n{source}" if before else source  # templates drop one line end after a statement


def _merges_system(source: str) -> bool:
    """Say whether a template was settled to merge system messages."""
    return _MERGING in source


def _check_arguments(arguments: Arguments, sources: Sequence[str], whose: str) -> None:
    """Refuse arguments that no template reads: it would drop them, and a misspelling would go unnoticed.

    Raises:
        UserError: names the argument.
    """
    for name in arguments:
        is_read = name.isidentifier() and any(re.search(rf"\b{name}\b", source) for source in sources)
        if name in GIVEN_ALREADY or not is_read:
            raise UserError(f"the chat template of {whose} takes no argument {name!r}; "
                            "give one that stands in the template, such as enable_thinking")  # fmt: skip


def apply_template(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[dict[str, str]], arguments: Arguments | None = None
) -> str:
    """Write a conversation as the model reads it, ready for the assistant's turn.

    Args:
        arguments: what the template itself reads besides the messages, such as `enable_thinking`.

    Raises:
        UserError: there is no template, it does not read an argument, or it refuses the conversation.
    """
    source = _source(tokenizer, arguments or {})
    try:
        return str(
            tokenizer.apply_chat_template(
                list(messages),
                tokenize=False,
                add_generation_prompt=True,
                chat_template=_dated(source),
                **({"date_string": PINNED_DATE.strftime("%d %b %Y")} | dict(arguments or {})),
            )
        )
    except Exception as error:  # jinja raises whatever the template's author wrote
        said = " ".join(str(error).split())
        if any(message["role"] == "system" for message in messages) and not _merges_system(source):
            said += "; if it takes no system message, model.system=merge puts it at the head of the next user turn"
        raise UserError(f"the chat template of {tokenizer.name_or_path} refused a conversation: {said}") from error


def template_identity(tokenizer: PreTrainedTokenizerBase, arguments: Arguments | None = None) -> str:
    """Return a SHA-256 over all that decides how conversations are written, messages aside."""
    source = _source(tokenizer, arguments or {})
    dated = "strftime_now" in source or "date_string" in source
    said = [source, tokenizer.special_tokens_map, dict(arguments or {}), str(PINNED_DATE) if dated else None]
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()


def _source(tokenizer: PreTrainedTokenizerBase, arguments: Arguments) -> str:
    if not tokenizer.chat_template:
        raise _lacking(tokenizer)
    source = str(tokenizer.get_chat_template())
    _check_arguments(arguments, [source], tokenizer.name_or_path)
    return source


def _chosen(tokenizer: PreTrainedTokenizerBase, wanted: str | None) -> str | dict[str, str]:
    if wanted is None:
        if not tokenizer.chat_template:
            raise _lacking(tokenizer)
        return tokenizer.chat_template
    if wanted == "plain":
        return ("{{ bos_token }}" if _adds_bos(tokenizer) else "") + PLAIN_TEMPLATE
    return _read(Path(wanted))


def _lacking(tokenizer: PreTrainedTokenizerBase) -> UserError:
    return UserError(
        f"{tokenizer.name_or_path or 'the model'} has no chat template: choose a chat (instruct) model, or say how "
        "conversations are written: model.template=plain (Question: … Answer: …) or a .jinja file, "
        "by --set (refusal generate: --template)"
    )


def _adds_bos(tokenizer: PreTrainedTokenizerBase) -> bool:
    return tokenizer.bos_token_id is not None and tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]


def _read(path: Path) -> str:
    try:
        source = path.read_text(encoding="utf-8")
        jinja2.Environment(extensions=["jinja2.ext.loopcontrols"]).parse(
            re.sub(r"{%-?\s*(end)?generation.*?%}", "", source)
        )
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"model.template {str(path)!r} is neither plain nor a readable file: {reason}") from None
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: not a Jinja template: {error.message}") from None
    if not source.strip():
        raise UserError(
            f"{path} is empty; a template writes the messages, for example as extract/chat/template.py does"
        )
    return source


def _dated(source: str) -> str:
    """Give the pinned date to a template that asks for today's (transformers takes no function as an argument)."""
    if "strftime_now" not in source:
        return source
    fields = "".join(f" | replace('%{code}', '{PINNED_DATE.strftime('%' + code)}')" for code in "aAbBdHIjmMpSyY")
    return "{% macro strftime_now(format) %}{{ format" + fields + " }}{% endmacro %}{{ '' }}" + source
