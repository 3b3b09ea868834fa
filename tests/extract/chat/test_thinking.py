"""Thought and answer are split at the marks between them, also if the prompt has the opening mark."""

import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase

from extract.chat.thinking import SplitCompletion, StreamedSplit, is_mark, reopened, split_thinking, thinks
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


STREAMED = [
    "", "No.", "He says no.", "<b>No</b>", "Analysis of the text: it rhymes.", "Close it: `</think>`.", "hm</think>No",
    "So. Here's my response: no.", "x" * 300 + "<think>", "<think>\nhm\n</think>\n\nNo.", "<think>\n\n</think>\n\nNo.",
    "\n<think>\nhm\n</think>\nNo.",
    "<think>", "<think>a < b, a <", "[THINK]h[m][/THINK]No.", "◁think▷a◁/think▷No", "<|channel>thought a<channel|>No",
    "<|channel|>analysis<|message|>hm<|end|>s<|channel|>final<|message|>No.", "analysisWe must not.assistantfinalNo.",
    "Thinking... hm ...done thinking. No.", "## Thinking\nhm\n## Final Response\nNo.",
    "Here is my thought process: hm Here is my response: No.", '<think>Say "no" to `</think>`.</think>"No."',
    "<think>Here's my response: no?" + " hm" * 40 + "</think>No. It is </think>.",
]  # fmt: skip


@pytest.mark.parametrize("completion", STREAMED)
@pytest.mark.parametrize("size", [1, 2, 5, 999])
def test_a_streamed_completion_is_split_alike_whatever_its_pieces(completion: str, size: int) -> None:
    split = StreamedSplit()
    pieces = [completion[i : i + size] for i in range(0, len(completion), size)]
    given = [*map(split.push, pieces), split.push("", last=True)]
    thought, answer = ("".join(parts) for parts in zip(*given, strict=True))
    first = next((i for i, (_, new) in enumerate(given) if new), len(given))
    assert not any(new for new, _ in given[first + 1 :])  # the thought comes first
    if completion.endswith("</think>."):  # a later mark is part of the answer, which was given by then
        assert thought == completion[7 : completion.index("</think>")]
        assert answer == "No. It is </think>."
    elif completion.startswith(("hm", "So", "Thinking", "## ", "Here")):  # no thought, or words as answers begin with
        assert (thought, answer) == ("", completion)
    else:
        parted = split_thinking(completion)
        assert (thought, answer) == (parted.thought, parted.answer.lstrip())


def test_a_thought_is_given_while_it_is_written() -> None:
    pieces = ("<think>", "\nso it is", " one", " of a", " <", " b", "</", "think>", "\n\n", "No", ".")
    given = [*map(StreamedSplit().push, pieces)]
    assert [new for new, _ in given] == ["", "", "so it is one", " of a", "", "", "", "", " < b", "", ""]
    assert [new for _, new in given] == [""] * 9 + ["No", "."]
    pushed = ("N", "# Thin", "anal", "analysis\nIt", "Analysis", "<", "<b>" + "a" * 64)
    held = {"anal", "<"}
    assert [StreamedSplit().push(text) for text in pushed] == [("", "" if text in held else text) for text in pushed]


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
