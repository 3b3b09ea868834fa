"""Chat templates: choosing one, setting its arguments, applying it to a conversation, and its identity.

Arguments (`enable_thinking`) and the treatment of system messages are written into the template's source, as Jinja
statements before its first line, so that they apply to every call and its hash depends on them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

import jinja2
from pydantic import JsonValue
from transformers import PreTrainedTokenizerBase

from extract.errors import UserError
from extract.keyed_file import content_key

Arguments = Mapping[str, JsonValue]  # a template's arguments by name
System = Literal["keep", "merge"]  # of system messages
GIVEN_ALREADY = ("messages", "add_generation_prompt")
_SETTING = re.compile(r"{% set (\w+) = (.*?) %}")  # as `choose_template` writes an argument

PINNED_DATE = date(2024, 7, 26)  # with today's date in a template, activations would differ from day to day
# A form that base models know from training: a text, then questions and answers. It adds no content, ends without a
# blank (the next token starts with one); inst_last is the question's last token, post_last the last colon.
PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] | trim + '\\n\\n' }}"
    "{% elif message['role'] == 'user' %}{{ 'Question: ' + message['content'] | trim + '\\n' }}"
    "{% else %}{{ 'Answer: ' + message['content'] | trim + '\\n\\n' }}{% endif %}"
    "{% endfor %}{{ 'Answer:' }}"
)
# The text of a system message goes before the text of the next user turn, separated by a blank line.
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
    tokenizer: PreTrainedTokenizerBase, wanted: str | None, arguments: Arguments | None = None, system: System = "keep"
) -> str | dict[str, str]:
    """Return the chat template to use: the model's own (None), `plain`, or the content of a `.jinja` file.

    `system="merge"` puts system messages at the start of the next user turn, for templates that refuse them.
    """
    chosen: str | dict[str, str]
    if wanted is None:
        if not tokenizer.chat_template:
            raise _missing_template(tokenizer)
        chosen = tokenizer.chat_template
    elif wanted == "plain":
        bos = tokenizer.bos_token_id
        adds_bos = bos is not None and tokenizer("a")["input_ids"][:1] == [bos]
        chosen = ("{{ bos_token }}" if adds_bos else "") + PLAIN_TEMPLATE
    else:
        chosen = _read(Path(wanted))
    sources = chosen if isinstance(chosen, dict) else {"default": chosen}  # some tokenizers hold several by name
    for name in arguments or {}:  # a misspelt one would have no effect
        is_read = name.isidentifier() and any(re.search(rf"\b{name}\b", source) for source in sources.values())
        if name in GIVEN_ALREADY or not is_read:
            raise UserError(
                f"the chat template of {wanted or tokenizer.name_or_path} takes no argument {name!r}; "
                "give one that occurs in the template, such as enable_thinking"
            )
    setting = "".join(f"{{% set {name} = {value!r} %}}" for name, value in (arguments or {}).items())
    if before := setting + (_MERGING if system == "merge" else ""):
        sources = {name: f"{before}\n{source}" for name, source in sources.items()}  # a template drops the line end
    return sources if isinstance(chosen, dict) else sources["default"]


def template_arguments(tokenizer: PreTrainedTokenizerBase) -> dict[str, JsonValue]:
    """Return the arguments that were given to `choose_template`, from the source that it wrote."""
    source, at = _source(tokenizer), 0
    given: dict[str, JsonValue] = {}
    while setting := _SETTING.match(source, at):
        try:
            given[setting[1]] = ast.literal_eval(setting[2])
        except (SyntaxError, ValueError):  # the template's own first statement
            break
        at = setting.end()
    return given


def apply_template(tokenizer: PreTrainedTokenizerBase, messages: Sequence[dict[str, str]]) -> str:
    """Write a conversation in the model's chat format, up to the start of the assistant's turn."""
    source = _source(tokenizer)
    try:
        return str(
            tokenizer.apply_chat_template(
                list(messages),
                tokenize=False,
                add_generation_prompt=True,
                chat_template=_dated(source),
                date_string=PINNED_DATE.strftime("%d %b %Y"),
            )
        )
    except Exception as error:  # templates raise their own errors
        reason = " ".join(str(error).split())
        if any(message["role"] == "system" for message in messages) and _MERGING not in source:
            reason += "; if it takes no system message, model.system=merge puts it at the start of the next user turn"
        raise UserError(f"the chat template of {tokenizer.name_or_path} refused a conversation: {reason}") from error


def template_identity(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a SHA-256 over everything besides the messages that determines how conversations are written."""
    source = _source(tokenizer)
    dated = "strftime_now" in source or "date_string" in source
    parts = [source, tokenizer.special_tokens_map, {}, str(PINNED_DATE) if dated else None]
    return content_key(*parts)


def _source(tokenizer: PreTrainedTokenizerBase) -> str:
    if not tokenizer.chat_template:
        raise _missing_template(tokenizer)
    return str(tokenizer.get_chat_template())


def _missing_template(tokenizer: PreTrainedTokenizerBase) -> UserError:
    return UserError(
        f"{tokenizer.name_or_path or 'the model'} has no chat template; choose a chat (instruct) model, or give a "
        "template with --set model.template=plain (Question: … Answer: …) or a .jinja file "
        "(refusal generate: --template)"
    )


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
    """Return the template with the pinned date in place of today's (transformers takes no function as an argument)."""
    if "strftime_now" not in source:
        return source
    fields = "".join(f" | replace('%{code}', '{PINNED_DATE.strftime('%' + code)}')" for code in "aAbBdHIjmMpSyY")
    return "{% macro strftime_now(format) %}{{ format" + fields + " }}{% endmacro %}{{ '' }}" + source
