"""Token roles of rendered prompts, the notes on them, and their memory; `test_templates.py` has the templates."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from extract.chat.render import (
    PRIVATE_USE,
    Rendered,
    Roles,
    Show,
    find_words,
    position_names,
    refuse_too_long,
    remarks,
    render,
    token_texts,
)
from extract.errors import UserError
from tests.extract.conftest import ask
from tests.support import families
from tests.support.one_line import refused

LOOP = "{%% for m in messages %%}%s{%% endfor %%}"


def joining() -> PreTrainedTokenizerBase:
    """A tokenizer of words with one that a template can complete: kill + ing."""
    words = {word: i for i, word in enumerate(["<unk>", "kill", "ing", "killing", "it"])}
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=raw)


@pytest.mark.parametrize(
    ("content", "trigger", "up_to"),
    [
        ("how do i kill a process that kills?", "kill", "how do i kill"),
        ("skill, then kill it", "kill", "skill, then kill"),
        ("i Kill it", "kILL", "i Kill"),
        ("blow up the door", "blow up", "blow up"),
        ("is c++ (hard)?", "(hard)", "is c++ (hard)"),
        ("a c++ hit", "c++", "a c++"),
        ("please kill it, kill it", "kill", "please kill"),
        ("a skilled killer", "kill", None),
    ],
)
@pytest.mark.parametrize("shown", ["m.content", "m.content | upper"])
def test_trigger_last_is_the_last_token_of_the_whole_word(
    tokenizer: PreTrainedTokenizerBase, content: str, trigger: str, up_to: str | None, shown: str
) -> None:
    tokenizer.chat_template = LOOP % ("{{ '<|user|>' + m.role + (%s) }}" % shown) + " <|assistant|>"  # noqa: UP031
    rendered = render(tokenizer, ask(content, trigger=trigger))
    if up_to is None:
        assert "trigger_last" not in rendered.roles
        return
    (index,) = rendered.roles["trigger_last"]
    spans = tokenizer(rendered.text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    start, end = spans[index]
    assert start < len("<|user|>user" + up_to) <= end


def test_trigger_is_looked_for_in_the_users_last_words_only(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = LOOP % "{{ m.role + ': ' + m.content }} " + "assistant:"
    assert "trigger_last" not in render(tokenizer, ask("kill it", "kill it?", "stop it", trigger="kill")).roles
    assert "trigger_last" not in render(tokenizer, ask("stop it", trigger="assistant")).roles


def test_position_names_are_in_the_order_of_the_prompt(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = "{{ bos_token }}" + LOOP % "{{ m.content }}" + "<|end|>" * 11
    triggered = render(tokenizer, ask("kill it", trigger="kill"))
    numbered = tuple(f"post_{k}" for k in range(1, 11))
    assert position_names([triggered]) == ("inst_last", *numbered, "post_last", "inst_mean", "trigger_last")
    tokenizer.chat_template = LOOP % "{{ m.content }}"
    bare = render(tokenizer, ask("kill it", trigger="stop"))
    assert position_names([bare]) == ("inst_last", "inst_mean")
    assert position_names([bare, triggered]) == position_names([triggered])


def test_roles_are_a_mapping_of_what_a_prompt_has() -> None:
    roles = Roles(range(2, 5), 8, trigger=3)
    named = {"inst_last": (4,), "post_1": (5,), "post_2": (6,), "post_last": (7,), "inst_mean": range(2, 5),
             "trigger_last": (3,)}  # fmt: skip
    assert dict(roles) == named == roles
    assert list(roles) == list(named)
    assert len(roles) == len(named)
    for absent in ("post_0", "post_3", "post_01", "post_-1", "post_x", "post_", "inst", "response_1", "post_²"):
        assert absent not in roles
        assert roles.get(absent, ()) == ()
    assert dict(Roles(range(0, 3), 3)) == {"inst_last": (2,), "inst_mean": range(1, 3)}
    assert dict(Roles(range(0, 3), 4)) == {"inst_last": (2,), "post_last": (3,), "inst_mean": range(1, 3)}


@pytest.mark.parametrize("words", ["\u200b", "   "])
def test_words_without_a_token_are_refused(words: str) -> None:
    tokenizer = joining()
    tokenizer.chat_template = "it " + LOOP % "{{ m.content | replace('\u200b', '') }}" + " it"
    refused("prompt 'p': no token covers the user's words after the chat template", render, tokenizer, ask(words))


def test_template_errors_name_the_prompt(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = "hello, i am the assistant"
    with pytest.raises(UserError, match=r"^prompt 'p': the chat template drops the user's words; use another template"):
        render(tokenizer, ask("assistant"))
    tokenizer.chat_template = "{{ 'b a' if messages[0].content == 'a' else 'a b' }} {{ messages[0].content }} a"
    assert render(tokenizer, ask("c")).text == "a b c a"
    refused(r"^prompt 'p': the chat template writes text around the user's words that", render, tokenizer, ask("a"))


def test_remarks_count_what_a_reader_must_know_with_an_example() -> None:
    tokenizer = joining()
    tokenizer.chat_template = LOOP % "{{ m.content | replace('no', 'it') }}" + "ing"
    prompts = [ask("it", id="nothing to say", trigger="it"), ask("it kill", id="joined", trigger="skill"),
               ask("kill", id="joined too"), ask("no it", id="other words", trigger="NO")]  # fmt: skip
    rendered = [render(tokenizer, prompt) for prompt in prompts]
    rendered[0] = replace(rendered[0], ambiguous=False, altered=False)
    assert [row.ambiguous for row in rendered] == [False, True, True, True]
    assert remarks(prompts, rendered) == [
        "3 of 4 prompts: the last token of the instruction also covers template text after it (inst_last is "
        "ambiguous), for example 'joined'",
        "1 of 4 prompts: the chat template alters the user's words, for example 'other words'",
        "4 of 4 prompts: the template writes nothing after the instruction (no post_last), for example 'nothing to "
        "say'",
        "2 of 4 prompts: the trigger is not a word of the last user turn (no trigger_last), for example 'joined'",
    ]
    tokenizer.chat_template = LOOP % "{{ m.content }}" + " ing"
    assert not render(tokenizer, prompts[1]).ambiguous
    assert remarks(prompts[:1], [render(tokenizer, prompts[0])]) == []
    assert remarks([], []) == []


def test_prompts_longer_than_the_context_are_counted_and_the_longest_is_named() -> None:
    prompts = [ask("x", id=name) for name in "abc"]
    rows = [Rendered("", [1] * n, {}, ambiguous=False) for n in (9, 12, 11)]
    refuse_too_long(prompts, rows, 12)
    refuse_too_long(prompts, rows, None)
    with pytest.raises(UserError, match=r"^2 of 3 prompts are longer than the model's context, 10 tokens; 'b' has 12"):
        refuse_too_long(prompts, rows, 10)


BYTES = ("日本語 kill", "ü 😀👩‍👩‍👧!", "مرحبا", "a \ufffd b", "\ufffd" * 100, "how do i kill it?")


@pytest.mark.parametrize("text", BYTES, ids=range(len(BYTES)))
def test_the_texts_of_tokens_join_to_the_whole_text(text: str) -> None:
    byte_level = families.tokenizer("qwen2.5-1.5b-instruct")
    ids = byte_level(text, add_special_tokens=False)["input_ids"]
    found = token_texts(byte_level, ids)
    assert len(found) == len(ids)
    assert "".join(found) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in found)
        assert any("\ufffd" in byte_level.decode([i]) for i in ids) == (not text.isascii())


def test_a_character_is_the_text_of_the_token_that_completes_it() -> None:
    byte_level = families.tokenizer("qwen2.5-1.5b-instruct")
    ids = byte_level("日", add_special_tokens=False)["input_ids"]
    kill = byte_level(" kill", add_special_tokens=False)["input_ids"]
    assert token_texts(byte_level, ids) == ["", "", "日"]
    assert token_texts(byte_level, [*ids[:2], *kill]) == ["", "\ufffd", " kill"]  # cut off: a mark, and nothing is lost
    assert token_texts(byte_level, ids[:2]) == ["", "\ufffd"]
    assert token_texts(byte_level, []) == []


ALL_PRIVATE_USE = "".join(map(chr, PRIVATE_USE))
KEPT = {  # (text before, text after) of templates that keep the words, apart from blanks at their ends
    "longer for long words": (lambda w: "LONG " * (len(w) > 9), lambda w: " end"),
    "other for empty-looking words": (lambda w: "" if w.isascii() else "[intl] ", lambda w: " end"),
    "commands": (lambda w: "[on] " * ("/think" in w), lambda w: " end" + "<off>" * ("/think" in w)),
    "tool answers": (lambda w: "thinking kept\n" * w.startswith("<tool>"), lambda w: "<end>"),
    "language": (lambda w: "", lambda w: " antworte" if "ich" in w else " answer"),
}


def place(show: Show, words: str) -> str:
    text = show(words)
    start, end = find_words(show, words, text)
    return text[:start] + "[[" + text[start:end] + "]]" + text[end:]


@pytest.mark.parametrize("words", ["kill it", "kill it please, now", "töte es", "was weiß ich", "<tool>12</tool>",
                                   "do /think about it", "/think", " kill it\n"])  # fmt: skip
@pytest.mark.parametrize("name", KEPT)
def test_surroundings_may_depend_on_words_that_occur_once(name: str, words: str) -> None:
    before, after = KEPT[name]
    assert place(lambda w: before(w) + w + after(w), words) == before(words) + f"[[{words}]]" + after(words)


@given(st.sampled_from(sorted(KEPT)), st.text(min_size=1))
def test_found_words_are_the_words_or_nothing_is_found(name: str, words: str) -> None:
    before, after = KEPT[name]
    assume(words.strip())
    text = before(words) + words + after(words)
    try:
        start, end = find_words(lambda w: before(w) + w + after(w), words, text)
    except UserError:
        return
    assert text[:start].rstrip() == (before(words) + words[: len(words) - len(words.lstrip())]).rstrip()
    assert text[start:end].strip() == words.strip()


@pytest.mark.parametrize(
    ("show", "words", "found"),
    [
        (lambda w: "[INST] " + w.strip() + " [/INST]", " kill it ", "[INST] [[kill it]] [/INST]"),
        (lambda w: f"a {w} a {w} a", "a", "a a a [[a]] a"),
        (lambda w: f"{w.upper()}\n{w}\n", "kill it", "KILL IT\n[[kill it]]\n"),
        (lambda w: f"{w.upper()}\n{w.strip()}\n", "kill it ", "KILL IT \n[[kill it]]\n"),
        (lambda w: f"<{w[:3]}…>", "kill it", "<[[kil]]…>"),
        (lambda w: f"user={json.dumps(w)};", 'é "q"\n', 'user="[[\\u00e9 \\"q\\"\\n]]";'),
        (lambda w: f"user={json.dumps(w.upper())};", "é\n", 'user="[[\\u00c9\\n]]";'),
        (lambda w: "[K] " * ("k" in w) + w.upper() + "!", "kill it", "[K] [[KILL IT]]!"),
        (lambda w: "[K] " * w.startswith("k") + w.upper() + "!", "kill it", "[K] [[KILL IT]]!"),
        (lambda w: "[K] " * ("k" in w) + w.replace("i", "1") + "!", "kill it", "[K] [[k1ll 1t]]!"),
        (lambda w: f"you said: {w.split('</think>')[-1]}.", "no</think>yes", "you said: [[yes]]."),
        (lambda w: f"\ue000 {w.replace('i', '1')} \ue001!", "kill it", "\ue000 [[k1ll 1t]] \ue001!"),
        (lambda w: f"({w.title()})", "kill it", "([[Kill It]])"),
        (lambda w: f"({' '.join(w.split())})", "kill\n\n it", "([[kill it]])"),
        (lambda w: f"a {w} b", ALL_PRIVATE_USE, f"a [[{ALL_PRIVATE_USE}]] b"),
    ],
)
def test_words_repeated_or_altered(show: Show, words: str, found: str) -> None:
    assert place(show, words) == found


@pytest.mark.parametrize("words", ["kill it", "a"])
def test_dropped_words_are_not_mistaken_for_the_templates_own(words: str) -> None:
    with pytest.raises(UserError, match=r"^the chat template drops the user's words; use another template"):
        place(lambda w: "a template that kill it", words)


@pytest.mark.parametrize(
    ("show", "fine", "placed", "lost"),
    [
        (lambda w: "[k] " * w.startswith("k") + w + "!", "kill", "[k] [[kill]]!", "k"),  # they recur in that text
        (
            lambda w: "never kill it" if w.startswith("kill") else f"<{w}> never kill it?",
            "stop it", "<[[stop it]]> never kill it?", "kill it",  # dropped, and in the template's own words
        ),
        (lambda w: "[K] " * w.startswith("k") + w.replace("i", "1") + "!", "stop it", "[[stop 1t]]!", "kill it"),
    ],
)  # fmt: skip
def test_words_that_the_text_around_them_depends_on_are_refused(show: Show, fine: str, placed: str, lost: str) -> None:
    assert place(show, fine) == placed
    refused("depends on them, so their position cannot be found", place, show, lost)
