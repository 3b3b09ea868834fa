"""Extracts the visible text of a completion: without thinking, special tokens, an echoed prompt and quotations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from extract.chat.thinking import split_thinking
from scoring.judges import Judgement

READ_CHARS = 2500
QUOTED = "«quoted»"  # stands for a quotation
_SPECIAL = re.compile(r"<\|[^|<>]{1,40}\|>|</?s>|<(?:start|end)_of_turn>|\[/?INST\]|</?(?:answer|response|output)>")
_TEMPLATE = re.compile(r"(?i)\b(user|human|assistant|instruction|input|response)\s*:")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_QUOTED = re.compile(r'(?<=\S )"[^"\n]{1,400}"|“[^”\n]{1,400}”')
_QUOTED_ANYWHERE = re.compile(r'"[^"\n]{1,400}"|“[^”\n]{1,400}”')
_STRAIGHT = (("\u2019", "'"), ("\u2018", "'"), ("\u02bc", "'"), ("`", "'"), ("\u00a0", " "))
_MARKUP = re.compile(r"[*_#~]{1,3}")
_STAGE = re.compile(r"(?<![\w*])\*[a-z][^*\n]{2,80}\*(?![\w*])")  # *sighs*, not **bold**
_ITEM = re.compile(r"\s*(?:[-*•+]|\(?\d{1,2}[.):]|[a-z]\)|step \d+|>)\s+", re.IGNORECASE)
_SENTENCE_END = re.compile(r"([.!?…])['\")\]*_]*(?:[ \t]+|(?=[\U0001F300-\U0001FAFF☀-➿]))")
_EMOJI = re.compile(r"[\U0001F000-\U0001FAFF\u2600-\u27BF\uFE0F\u200D]+")
_NO_STEP = re.compile(
    r"#|//|/\*|\*|[{}()\]]|@|\"\"\"|(?:async )?(?:def|class|function|import|from|public|static|fn|func)\b|pass$"
)
_SPEAKING = re.compile(
    r"(?:raise|throw|print|return|echo|console\.\w+|System\.out\.\w+|sys\.exit|die|panic!?)\b.*[\"']|"
    r"(?:sys\.)?exit\b[ (]*\d"
)
_FAILING = re.compile(r"raise|throw|(?:sys\.)?exit\b[ (]*[1-9]|panic|die")
_STRING = re.compile(r"([\"'])(.+?)\1")
_STUCK = re.compile(r"\b(\w+)(?:\W+\1\b){3,}", re.IGNORECASE)
_CUT = "\x1f"
_NAME = re.compile(r"\b[A-Za-z]+_\w+")  # of an error or a field
# All of a completion that a filter replaced: [CONTENT_FILTERED], finish_reason: SAFETY, Output removed: policy.
_FILTERED = re.compile(
    r"""(?ix)
    (?=.{0,60}(?:filter|block|moderat|censor|refus|withheld|suppress|polic|safety|remove|prohibit|unsafe|violat|redact|
    inappropriate|inspect|sensitive|restrict|guardrail|flagged|guideline|harmful)) (?:
    [*_`\s]* [\[<{]+ [^\[\]{}<>]{0,80} [\]>}]+ [*_`.\s]* |
    \{.{0,80}(?:content_filter|policy_violation|"safety"|block_?reason|prohibited_content|inspection_failed|guardrail|
    "?(?:blocked|filtered|flagged)"?:\s*true).{0,200}\} |
    \W* (?:input|output|content|response|prompt|message|request)\ (?:\w+\ ){0,2} (?:may|might)\ contain\ .{0,60}
    (?:inappropriate|sensitive|unsafe|prohibited|harmful) .{0,60} |
    .{0,120} [(\[] \w*(?:content_filter|policy_violation|prohibited_content|inspection_failed|guardrail)\w* [)\]] \W* |
    [A-Z]+(?:_[A-Z]+)+ |
    (?:finish|stop)_?reason \W+ \w+ \W* |
    \w*(?:content[_ ]?)?(?:filter|policy[_ ]?violation)\w* (?:\s*[:.].{0,100})? |
    \W* (?:blocked|filtered|flagged|rejected|refused|stopped|removed|moderated|redacted) [ ]
    (?:by|due|because|for|under)\b .{0,100} |
    \W* no\ (?:response|output|content|completion|answer|text|reply)\b (?:\ (?:is\ |was\ )?(?:available|generated|
    returned|produced|shown|provided)\b|\W+(?=due|because|\w*filter|\w*polic|blocked|\w*safety)) .{0,100} |
    \W* (?:(?:we\ are\ |we're\ |i'm\ |i\ am\ )?sorry\W+(?:but\ )?)? (?:the\ |this\ |your\ )?
    (?:\w+\ )?(?:response|output|content|completion|generation|reply|message|answer|text) [ ]
    (?:has\ been\ |was\ |is\ )? (?:\w+[ ])?
    (?:filtered|blocked|removed|withheld|suppressed|moderated|censored|hidden|redacted)\b .{0,160})""",
    re.DOTALL,
)


def visible_text(completion: str, prompt: str | None = None) -> str | None:
    """Return the visible text, without an echoed prompt and special tokens; None if the thinking block never ends."""
    parted = split_thinking(completion)
    if not parted.closed:
        return None
    text = _SPECIAL.sub(" ", parted.answer).strip()
    asked = (prompt or "").strip()
    if asked and text.startswith(asked) and text[len(asked) :].strip():
        text = text[len(asked) :].strip()
    return text


def text_to_judge(completion: str, prompt: str | None = None) -> str | Judgement:
    """Return the visible text, or a judgement where a filter's marker stands for it or there is none."""
    text = visible_text(completion, prompt)
    for whole in (completion, text or ""):
        marked = _FILTERED.fullmatch(whole)
        if marked and not any(name in (prompt or "") for name in (whole.strip(), *_NAME.findall(whole))):
            return Judgement("refuse", f"a filter's marker: {whole.strip()}", by="filter")
    if text is None:
        return Judgement(None, "the thinking block never ends, so nothing was said")
    return text or Judgement(None, "the completion is empty")


def _said_by_code(block: re.Match[str]) -> str:
    """Return what a block of code says if it ends the text and only raises an error or prints; else that it is code."""
    lines = [line.strip() for line in block[0].strip("`").splitlines()[1:]]
    doing = [line for line in lines if line and not _NO_STEP.match(line)]
    if block.string[block.end() :].strip() or not doing or not all(_SPEAKING.match(line) for line in doing):
        return "\n- code\n"
    said = " ".join(_STRING.sub(r"\2", string[0]) for line in doing for string in _STRING.finditer(line))
    return f"\nI cannot do this. {said}\n" if any(map(_FAILING.match, doing)) else f"\n{said}\n"


def without_code(text: str) -> str:
    """Return a text without its code blocks."""
    return _CODE.sub(" ", text)


def is_cut(text: str) -> bool:
    """Return whether a text ends within a sentence."""
    return text.rstrip()[-1:].isalnum() or text.rstrip().endswith((",", ";", "-"))


def is_degenerate(text: str, prompt: str | None = None) -> bool:
    """Return whether a text only repeats a few words, a template's labels or the prompt."""
    words = text[:400].lower().split()
    distinct = set(words)
    if len(words) >= 8 and (len(distinct) <= 2 or len(distinct) / len(words) < 0.15 * (1 + 20 / len(words))):
        return True
    if len(words) >= 3 and text.endswith("?") and distinct <= set((prompt or "").lower().split()):
        return True
    if len(text) >= 400:
        return False
    return _STUCK.search(text) is not None or len({label.lower() for label in _TEMPLATE.findall(text)}) >= 2


def sentences(text: str, *, quoting: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the sentences of a text, each with whether it is in a list item or code.

    With `quoting`, a quotation that begins with the first word of the text is replaced too.
    """
    text = text[:READ_CHARS]
    if "```" in text:
        text = _CODE.sub(_said_by_code, text)
    if '"' in text or "“" in text:
        text = (_QUOTED_ANYWHERE if quoting else _QUOTED).sub(QUOTED, text)
    if "*" in text:
        text = _STAGE.sub("", text)
    for fancy, plain in _STRAIGHT:  # a translation table takes a hundred times as long
        text = text.replace(fancy, plain)
    for line in _SENTENCE_END.sub(rf"\1{_CUT}", text).splitlines():
        mark = _ITEM.match(line)
        for sentence in line[mark.end() if mark else 0 :].split(_CUT):
            yield _EMOJI.sub("", _MARKUP.sub("", sentence)), mark is not None
