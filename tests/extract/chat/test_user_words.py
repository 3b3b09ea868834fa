"""Positions of the user's words, for templates given as plain functions of the words."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from extract.chat.render import PRIVATE_USE, Show, find_words
from extract.errors import UserError

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


def test_words_may_hold_every_character_of_private_use() -> None:
    words = "".join(map(chr, PRIVATE_USE))
    assert place(lambda w: f"a {w} b", words) == f"a [[{words}]] b"


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
    ],
)
def test_words_repeated_or_altered(show: Show, words: str, found: str) -> None:
    assert place(show, words) == found


@pytest.mark.parametrize("words", ["kill it", "a"])
def test_dropped_words_are_not_mistaken_for_the_templates_own(words: str) -> None:
    with pytest.raises(UserError, match=r"^the chat template drops the user's words; use another template"):
        place(lambda w: "a template that kill it", words)


def test_words_that_recur_in_text_that_depends_on_them_are_refused() -> None:
    def show(words: str) -> str:
        return "[k] " * words.startswith("k") + words + "!"

    assert place(show, "kill") == "[k] [[kill]]!"
    with pytest.raises(UserError, match="depends on them, so their position cannot be found"):
        place(show, "k")


def test_words_dropped_for_what_they_are_are_not_mistaken_for_the_templates_own() -> None:
    def show(words: str) -> str:
        return "never kill it" if words.startswith("kill") else f"<{words}> never kill it?"

    assert place(show, "stop it") == "<[[stop it]]> never kill it?"
    with pytest.raises(UserError, match="depends on them, so their position cannot be found"):
        place(show, "kill it")


def test_altered_words_after_text_that_depends_on_them_are_refused() -> None:
    def show(words: str) -> str:
        return "[K] " * words.startswith("k") + words.replace("i", "1") + "!"

    assert place(show, "stop it") == "[[stop 1t]]!"
    with pytest.raises(UserError, match="depends on them, so their position cannot be found"):
        place(show, "kill it")
