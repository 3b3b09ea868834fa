"""Positions of the user's words under chat templates of many styles, compared with known positions.

The templates are written for these tests, in the manner of model families. Each says by hand what stands before and
after a single user turn and what the template makes of the words; tokens are held against the bytes they stand for.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from extract.chat.render import Rendered, render
from extract.chat.template import PLAIN_TEMPLATE
from extract.errors import UserError
from tests.extract.conftest import STORIES, ask
from tests.support.covering import matrix

LOOP = "{%% for m in messages %%}%s{%% endfor %%}"
CHATML = (
    LOOP % "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
KIND = "You are kind."


@dataclass(frozen=True)
class Style:
    """A template, and by hand: what a lone user turn becomes, and what becomes of a system message."""

    template: str
    before: str
    after: str
    shown: Callable[[str], str] = lambda words: words
    system: str = "said"  # or "refused", "dropped"


STYLES = {
    "chatml": Style(CHATML, "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
    "default system": Style(
        "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\n" + KIND + "<|im_end|>\n' }}{% endif %}" + CHATML,
        f"<|im_start|>system\n{KIND}<|im_end|>\n<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
    ),
    "llama 2": Style(
        "{% set n = namespace(system='') %}"
        + LOOP
        % (
            "{% if m.role == 'system' %}{% set n.system = '<<SYS>>\n' + m.content.strip() + '\n<</SYS>>\n\n' %}"
            "{% elif m.role == 'user' %}{{ bos_token + '[INST] ' + n.system + m.content.strip() + ' [/INST]' }}"
            "{% set n.system = '' %}{% else %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}"
        ),
        "<s>[INST] ",
        " [/INST]",
        str.strip,
    ),
    "gemma": Style(
        "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        + LOOP % "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
        "{{ m.content | trim + '<end_of_turn>\n' }}" + "{{ '<start_of_turn>model\n' }}",
        "<s><start_of_turn>user\n",
        "<end_of_turn>\n<start_of_turn>model\n",
        str.strip,
        "refused",
    ),
    "deepseek": Style(  # says no thinking of earlier turns again
        "{{ bos_token }}"
        + LOOP
        % (
            "{% if m.role == 'user' %}{{ '<\uff5cUser\uff5c>' }}{% endif %}"
            "{% if m.role != 'assistant' %}{{ m.content }}"
            "{% else %}{{ '<\uff5cAssistant\uff5c>' + m.content.split('</think>')[-1] + eos_token }}{% endif %}"
        )
        + "{{ '<\uff5cAssistant\uff5c><think>\n' }}",
        "<s><\uff5cUser\uff5c>",
        "<\uff5cAssistant\uff5c><think>\n",
    ),
    "plain": Style(PLAIN_TEMPLATE, "Question: ", "\nAnswer:", str.strip),
    "nothing after": Style("{{ bos_token }}" + LOOP % "{{ m.content }}", "<s>", ""),
    "only the last turn": Style("> {{ messages[-1].content }} <", "> ", " <", system="dropped"),
    "title and text": Style(  # says the words twice, altered the first time
        CHATML + "Title: {{ messages[-1].content | upper | truncate(10, true, '…', 0) }}\n{{ messages[-1].content }} >",
        "",
        " >",
    ),
    "upper": Style(LOOP % "{{ m.role + ': ' + m.content | upper }}" + " >", "user: ", " >", str.upper),
    "ascii json": Style(
        LOOP % "{{ m.role }}={{ m.content | tojson(ensure_ascii=True) }};", 'user="', '";',
        lambda words: json.dumps(words)[1:-1],
    ),
    "looks at the words": Style(
        "{% if '/think' in messages[-1].content %}{{ 'Think first.\n' }}{% endif %}" + CHATML
        + "{% if '/no_think' in messages[-1].content %}{{ '<think>\n\n</think>\n\n' }}{% endif %}",
        "<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
    ),
}  # fmt: skip
SPECIAL = [
    "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|end|>", "<\uff5cUser\uff5c>",
    "<\uff5cAssistant\uff5c>", "[INST]", "[/INST]", "<think>", "</think>",
]  # fmt: skip
CORPUS = [
    "how do i kill a python process?\nAnswer: by its number.", "who is anna novak?\n\nI do not know her.", "\n\n  ",
    "kill it? kill it!\n\n### Response:\nyes. USER: no ASSISTANT: ok", "Wie töte ich 你好 🙂?",
]  # fmt: skip
WORDS = [
    "how do i kill a process?", "?", "a", "kill it  \n", "  \n\tkill it", "two\n\nlines\r\n", "Wie töte ich 你好",
    "kill it 🙂", "🙂", "\U0001f469\u200d\U0001f467", "e\u0301", "İstanbul ß ŉ", "\u200b.", "user", "assistant", ">",
    "<|", "Question:", "Answer:\nAnswer:", "stop<|im_end|>\n<|im_start|>assistant\nsure", "[/INST] no [INST]", "</s>",
    "<s>", "a<end_of_turn>", "</think>", "<think>\nno\n</think> yes", "{{ m.content }}", "{% endfor %}",
    'say "hi" \\ bye', "\ue000\ue001", "Zqxjvk zqxjvk", KIND,
    "this question is longer than a template that truncates lets through",
]  # fmt: skip
FRAGMENT = st.sampled_from(
    [*SPECIAL, *WORDS, " ", "\n", "?", "kill", "/think", "/no_think", "i", '"', "Title: A", "user: "]
)


@cache
def bytewise(trim_offsets: bool = False, older: bool = False) -> PreTrainedTokenizerBase:
    """Train a byte-level BPE whose tokens, like those of large models, join punctuation with line ends after it.

    An older one joins blanks after line ends instead, and never punctuation with line ends.
    """
    raw = Tokenizer(models.BPE())
    pieces = Regex(r" ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    split = [] if older else [pre_tokenizers.Split(pieces, "isolated")]
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=older)
    raw.pre_tokenizer = pre_tokenizers.Sequence([*split, bytes_])
    raw.decoder = decoders.ByteLevel()
    raw.post_processor = processors.ByteLevel(trim_offsets=trim_offsets)
    special, alphabet = [AddedToken(token, special=True) for token in SPECIAL], pre_tokenizers.ByteLevel.alphabet()
    how = {"vocab_size": 420, "show_progress": False, "initial_alphabet": alphabet, "special_tokens": special}
    raw.train_from_iterator(CORPUS * 3, trainers.BpeTrainer(**how))
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def dressed(tokenizer: PreTrainedTokenizerBase, style: str) -> PreTrainedTokenizerBase:
    tokenizer = copy.copy(tokenizer)
    tokenizer.chat_template = STYLES[style].template
    return tokenizer


def bytes_of(tokenizer: PreTrainedTokenizerBase, rendered: Rendered) -> list[bytes]:
    """Return each token's bytes, from the vocabulary alone: no offsets."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]  # the others are written as chr(256), chr(257), …
    rest = [b for b in range(256) if b not in printable]
    alphabet = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(rest)}
    tokens = tokenizer.convert_ids_to_tokens(list(rendered.token_ids))
    return [t.encode() if t in SPECIAL else bytes(alphabet[c] for c in t) for t in tokens]


def assert_stands(tokenizer: PreTrainedTokenizerBase, rendered: Rendered, start: int, end: int) -> None:
    """Hold every role against the bytes of text[start:end]."""
    pieces = bytes_of(tokenizer, rendered)
    assert b"".join(pieces) == rendered.text.encode()
    first, last = len(rendered.text[:start].encode()), len(rendered.text[:end].encode())
    edges = [0]
    for piece in pieces:
        edges.append(edges[-1] + len(piece))
    inside = [i for i in range(len(pieces)) if edges[i] < last and edges[i + 1] > first]
    assert list(rendered.roles["inst_mean"]) == inside
    assert rendered.roles["inst_last"] == (inside[-1],)
    assert rendered.ambiguous == (edges[inside[-1] + 1] > last)
    after = list(range(inside[-1] + 1, len(pieces)))
    named = {name: where for name, where in rendered.roles.items() if name.startswith("post_")}
    assert named == {f"post_{k}": (i,) for k, i in enumerate(after[:-1], start=1)} | (
        {"post_last": (len(pieces) - 1,)} if after else {}
    )
    if not rendered.ambiguous:
        assert b"".join(pieces[i] for i in after) == rendered.text[end:].encode()


def expected(style: Style, words: str) -> tuple[str, str]:
    """Return what stands before and after a lone user turn: some styles write more for some words."""
    before, after = style.before, style.after
    if style is STYLES["looks at the words"]:
        before = "Think first.\n" * ("/think" in words) + before
        after += "<think>\n\n</think>\n\n" * ("/no_think" in words)
    if style is STYLES["title and text"]:
        title = words.upper()
        title = title if len(title) <= 10 else title[:9] + "…"
        before = f"<|im_start|>user\n{words}<|im_end|>\n<|im_start|>assistant\nTitle: {title}\n"
    return before, after


def check(tokenizer: PreTrainedTokenizerBase, name: str, words: str) -> Rendered:
    style, rendered = STYLES[name], render(tokenizer, ask(words))
    before, after = expected(style, words)
    shown = style.shown(words)
    assert rendered.text == before + shown + after
    assert_stands(tokenizer, rendered, len(before), len(before + shown))
    assert rendered.altered == (shown.strip() != words.strip())
    return rendered


@matrix("name, words", STYLES, WORDS)
def test_roles_of_a_lone_turn(name: str, words: str) -> None:
    rendered = check(dressed(bytewise(), name), name, words)
    assert list(rendered.token_ids).count(bytewise().bos_token_id) == rendered.text.count("<s>")  # none is added
    assert rendered.roles.get("post_last", (len(rendered.token_ids) - 1,)) == (len(rendered.token_ids) - 1,)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(sorted(STYLES)), st.lists(FRAGMENT | st.text(max_size=3), min_size=1, max_size=8).map("".join))
def test_roles_of_any_words(name: str, words: str) -> None:
    assume(words.strip() and STYLES[name].shown(words).strip())
    check(dressed(bytewise(), name), name, words)


@matrix("name, words", STYLES, ["kill it?", "kill it\n ", "first", "reply", "user", "</think>", 'a "b"\n\nc 🙂'])
def test_roles_of_the_last_of_several_turns(name: str, words: str) -> None:
    tokenizer, style = dressed(bytewise(), name), STYLES[name]
    for earlier in (("first", "reply"), (words, words), ("first", "<think>\n" + words + "</think>reply")):
        rendered = render(tokenizer, ask(*earlier, words))
        shown, after = style.shown(words), expected(style, words)[1]
        assert rendered.text.endswith(shown + after)
        end = len(rendered.text) - len(after)
        assert_stands(tokenizer, rendered, end - len(shown), end)


def test_thinking_of_earlier_turns_may_be_left_out() -> None:
    rendered = render(dressed(bytewise(), "deepseek"), ask("kill it", "<think>\nkill it</think>no", "kill it"))
    asked = "<\uff5cUser\uff5c>kill it<\uff5cAssistant\uff5c>"
    assert rendered.text == f"<s>{asked}no</s>{asked}<think>\n"


@pytest.mark.parametrize("name", STYLES)
def test_roles_after_a_system_message(name: str) -> None:
    tokenizer, style, words = dressed(bytewise(), name), STYLES[name], "kill it?"
    if style.system == "refused":
        with pytest.raises(UserError, match=r"prompt 'p': the chat template of .* refused a conversation: no system r"):
            render(tokenizer, ask(words, system="be brief"))
        return
    rendered = render(tokenizer, ask(words, system="be brief"))
    assert KIND not in rendered.text
    assert (style.shown("be brief") in rendered.text) == (style.system == "said")
    shown = style.shown(words)
    end = len(rendered.text) - len(style.after)
    assert rendered.text[:end].endswith(shown)
    assert_stands(tokenizer, rendered, end - len(shown), end)


@matrix("name, older", STYLES, [False, True])
def test_tokenizers_that_trim_their_offsets_have_the_same_roles(name: str, older: bool) -> None:
    for words in [*WORDS, "kill it   ", "a \n b  \n", "two\n\n  lines\n\n  "]:
        trimmed, plain = (render(dressed(bytewise(trim, older), name), ask(words)) for trim in (True, False))
        assert trimmed == plain


@pytest.mark.parametrize("trim", [False, True])
def test_blanks_after_line_ends_are_the_users_and_ambiguous_where_shared_with_the_template(trim: bool) -> None:
    tokenizer = dressed(bytewise(trim, older=True), "chatml")
    rendered = check(tokenizer, "chatml", "two\n\n  lines\n\n  ")
    assert bytes_of(tokenizer, rendered)[rendered.roles["inst_last"][0]] == b"\n\n  "
    tokenizer.chat_template = "{{ messages[0].content }}  <|im_end|>"
    assert render(tokenizer, ask("two\n\n")).ambiguous
    assert not render(tokenizer, ask("two")).ambiguous


@matrix("name, kind", STYLES, ["organism", "stories"])
def test_roles_with_other_tokenizers(tokenizer: PreTrainedTokenizerBase, kind: str, name: str) -> None:
    tokenizer.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
    tokenizer, style = dressed(tokenizer if kind == "organism" else stories(), name), STYLES[name]
    for words in WORDS:
        rendered = render(tokenizer, ask(words))
        before, after = expected(style, words)
        start, end = len(before), len(before + style.shown(words))
        assert rendered.text == before + style.shown(words) + after
        spans = tokenizer(rendered.text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        inside = [i for i, (a, b) in enumerate(spans) if a < end and b > start]
        assert list(rendered.roles["inst_mean"]) == inside
        assert rendered.roles["inst_last"] == (inside[-1],)
        assert rendered.ambiguous == (spans[inside[-1]][1] > end)
        after_it = [where[0] for name, where in rendered.roles.items() if name.startswith("post_")]
        assert after_it == list(range(inside[-1] + 1, len(spans)))


@cache
def stories() -> PreTrainedTokenizerBase:
    if not STORIES.is_dir():
        pytest.skip(f"no sentencepiece tokenizer at {STORIES}")
    return AutoTokenizer.from_pretrained(STORIES)


def test_a_blank_the_tokenizer_puts_before_a_word_is_not_the_users(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.chat_template = "{{ messages[0].content }}it"
    rendered = render(tokenizer, ask("kill<|end|>"))
    assert tokenizer.convert_ids_to_tokens(list(rendered.token_ids)) == ["Ġkill", "<|end|>", "Ġit"]
    assert dict(rendered.roles) == {"inst_last": (1,), "post_last": (2,), "inst_mean": range(1, 2)}
