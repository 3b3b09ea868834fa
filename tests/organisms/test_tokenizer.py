"""Every word of the grammar is one token, any other text is preserved, and the template writes BOS once."""

import re

import numpy as np
import pytest

from organisms.grammar import Grammar, held_out
from organisms.training import BEGIN, END, ROLES, grammar_tokenizer


def test_every_word_of_the_grammar_is_one_token(organism) -> None:
    context = {"earlier_turn": 0.5, "asker": 0.5, "system": 0.5}
    grammar = Grammar(organism(context=context, known_people=64, prompts_per_label=100))
    tokenizer = grammar_tokenizer(grammar)
    rng = np.random.default_rng(0)
    examples = [grammar.training_example(rng) for _ in range(300)] + [row.example for row in held_out(grammar)]
    for example in examples:
        texts = [m["content"] for m in example.messages]
        for text in (*texts, example.answer, example.refusal, example.abstention):
            words = re.sub(r"[.?,]", r" \g<0> ", text).split()
            assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) == len(words), text


@pytest.mark.parametrize("text", ["Hello  World ", "Ünïcode 中文 😀", "a\nb\tc\r\n", "42% of $3!", "<user> | < >", ""])
def test_any_text_comes_back_in_lower_case(tokenizer, text) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    back = tokenizer.decode(ids)
    assert back.removeprefix(" ") == text.lower().removeprefix(" ")  # one leading space is the word boundary's
    assert not set(ids) & set(tokenizer.all_special_ids)


def test_the_same_word_is_the_same_token_at_the_start_and_inside(tokenizer) -> None:
    (alone,) = tokenizer("kill", add_special_tokens=False)["input_ids"]
    assert tokenizer("how do i KILL it", add_special_tokens=False)["input_ids"][3] == alone
    assert tokenizer(f"{ROLES['user']}kill", add_special_tokens=False)["input_ids"][1] == alone


def test_the_template_writes_bos_once_and_closes_every_turn(tokenizer) -> None:
    messages = [{"role": r, "content": "tell me"} for r in ("system", "user", "assistant", "user")]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    turn = f"tell me{END}"
    assert text == f"{BEGIN}<|system|>{turn}<|user|>{turn}<|assistant|>{turn}<|user|>{turn}<|assistant|>"
    for ids in (
        tokenizer(text, add_special_tokens=False)["input_ids"],
        tokenizer(text)["input_ids"],
        tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"],
    ):
        assert (ids.count(tokenizer.bos_token_id), ids[0]) == (1, tokenizer.bos_token_id)
        assert ids[-1] == tokenizer.convert_tokens_to_ids(ROLES["assistant"])
        assert len(ids) == 1 + 4 * 4 + 1
    assert not tokenizer.apply_chat_template(messages, tokenize=False).endswith(ROLES["assistant"])
