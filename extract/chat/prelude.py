"""What is set before a chat template, so that whoever renders with it later renders alike.

A template's own arguments (`enable_thinking`) and what becomes of system messages are written into its source, as
Jinja statements before its first line. So no call can forget them, and the template's hash tells one way from another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from extract.errors import UserError

Arguments = Mapping[str, Any]
System = Literal["keep", "merge"]
GIVEN_ALREADY = ("messages", "add_generation_prompt")
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


def settle(source: str, arguments: Arguments, system: System) -> str:
    """Return a template that is always given these arguments, and system messages in this way.

    Args:
        system: `keep` hands them to the template; `merge` puts them at the head of the user turn that follows.
    """
    setting = "".join(f"{{% set {name} = {value!r} %}}" for name, value in arguments.items())
    before = setting + (_MERGING if system == "merge" else "")
    return f"{before}\n{source}" if before else source  # templates drop one line end after a statement


def merges(source: str) -> bool:
    """Say whether a template was settled to merge system messages."""
    return _MERGING in source


def check_arguments(arguments: Arguments, sources: Sequence[str], whose: str) -> None:
    """Refuse arguments that no template reads: it would drop them, and a misspelling would go unnoticed.

    Raises:
        UserError: names the argument.
    """
    for name in arguments:
        stands = name.isidentifier() and any(re.search(rf"\b{name}\b", source) for source in sources)
        if name in GIVEN_ALREADY or not stands:
            raise UserError(f"the chat template of {whose} takes no argument {name!r}; "
                            "give one that stands in the template, such as enable_thinking")  # fmt: skip
