"""Thought and answer are split at the marks between them, also if the prompt has the opening mark."""

import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase

from extract.chat.thinking import SplitCompletion, is_mark, reopened, split_thinking, thinks
from extract.model.chat_model import ChatModel


@pytest.mark.parametrize(
    ("completion", "parted"),
    [
        ("No.", SplitCompletion("", "No.")),
        ("", SplitCompletion("", "")),
        ("<think>\nhm\n</think>\n\nNo.", SplitCompletion("hm", "\n\nNo.")),
        ("<think>\n\n</think>\n\nNo.", SplitCompletion("", "\n\nNo.")),
        ("hm</think>No.", SplitCompletion("hm", "No.")),
        ("<think>a</think><think>b</think>No.", SplitCompletion("a  b", "No.")),
        ("<THINK>I cannot", SplitCompletion("I cannot", "", closed=False)),
        ("[THINK]hm[/THINK]No.", SplitCompletion("hm", "No.")),
        ("◁think▷hm◁/think▷No.", SplitCompletion("hm", "No.")),
        ("<|START_THINKING|>hm<|END_THINKING|>No.", SplitCompletion("hm", "No.")),
        ("<seed:think>hm</seed:think>No.", SplitCompletion("hm", "No.")),
        ("<|channel>thought hm<channel|>No.", SplitCompletion("hm", "No.")),
        (
            "<|channel|>analysis<|message|>hm<|end|>s<|channel|>final<|message|>No.",
            SplitCompletion("hm<|end|>s", "No."),
        ),
        ("<|channel|>analysis<|message|>I cannot", SplitCompletion("I cannot", "", closed=False)),
        ("analysisWe must refuse.assistantfinalNo.", SplitCompletion("We must refuse.", "No.")),
        ("analysisWe must refuse", SplitCompletion("We must refuse", "", closed=False)),
        ('<think>Say "no"</think>"No."', SplitCompletion('Say "no"', '"No."')),
        ("Close it with `</think>`.", SplitCompletion("", "Close it with `</think>`.")),
        ('Some models write "<think>".', SplitCompletion("", 'Some models write "<think>".')),
        ("Analysis of the text: it rhymes.", SplitCompletion("", "Analysis of the text: it rhymes.")),
        ("x" * 300 + "<think>", SplitCompletion("", "x" * 300 + "<think>")),  # an answer about such marks
    ],
)
def test_a_completion_is_parted(completion: str, parted: SplitCompletion) -> None:
    assert split_thinking(completion) == parted


def test_an_empty_block_is_no_thought_and_a_cut_off_one_is() -> None:
    assert not any(thinks(c) for c in ("No.", "<think>\n\n</think>\n\nNo."))
    assert all(thinks(c) for c in ("<think>hm</think>No.", "<think>", "hm</think>"))


def test_the_mark_a_template_wrote_is_put_back() -> None:
    assert reopened("user: hi\nassistant: <think>\n", "hm") == "<think>\nhm"
    assert not split_thinking(reopened("assistant: <think>\n", "I cannot")).closed
    for prompt in ("user: hi\n", "<think>\n\n</think>\n\n", "what is <think>? assistant:"):
        assert reopened(prompt, "hm") == "hm"


def test_marks_that_are_special_tokens_are_decoded_and_no_others(tiny, tokenizer: PreTrainedTokenizerBase) -> None:  # type: ignore[no-untyped-def]
    model = ChatModel(tiny("llama").model, tokenizer, "tiny")
    marks = [text for text in ("<think>", "</think>", "think", "<|im_end|>", "<think> a") if is_mark(text)]
    assert marks == ["<think>", "</think>"]
    tokenizer.add_tokens([AddedToken(mark, special=True) for mark in marks])
    ids = tokenizer("<think>kill</think>fix", add_special_tokens=False)["input_ids"]
    end = tokenizer.eos_token_id
    assert "".join(model.decode([*ids, end]).split()) == "<think>kill</think>fix"
    assert model.decode(tokenizer("kill", add_special_tokens=False)["input_ids"] + [end]) == "kill"
