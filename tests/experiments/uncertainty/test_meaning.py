"""Answers with the same meaning: by wording, by entailment against an oracle, and with a small real model."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from experiments.uncertainty.meaning import (
    EntailmentClusterer,
    ExactClusterer,
    JudgedAnswers,
    cluster_wordings,
    entailment_label,
    normalised,
    open_clusterer,
)
from extract.errors import UserError

SAME = [("Paris", "paris."), ("The Eiffel Tower", "an eiffel tower!"), ("I think it is Paris.", "Paris"),
        ("The answer is: 1,000 km", "1000 km"), ("Well, as far as I know, it's  Marie-Curie", "marie curie"),
        ("<think>London? No.</think> Paris", "Paris")]  # fmt: skip
OTHER = [("Paris", "London"), ("3.5", "35"), ("-5", "5"), ("1990-1994", "1990"), ("not Paris", "Paris"), ("yes", "no"),
         ("it is not", "it is"), ("1,5", "15")]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME + OTHER)
def test_wordings_of_one_answer_are_the_same_and_other_answers_are_not(one: str, other: str) -> None:
    assert (normalised(one) == normalised(other)) == ((one, other) in SAME)


def test_refusals_are_one_meaning_and_abstentions_another() -> None:
    texts = ("Paris.", "I cannot help.", "I won't do it.", "I do not know.", "no idea", "paris")
    actions = ("answer", "refuse", "refuse", "abstain", "abstain", "answer")
    assert ExactClusterer().clusters([JudgedAnswers("?", texts, actions)]) == [(0, 1, 1, 2, 2, 0)]


def test_an_answer_joins_the_first_cluster_it_entails_both_ways() -> None:
    said = {key: key for key in ("car", "auto", "vehicle", "boat")}
    entailed = {("car", "auto"), ("auto", "car"), ("car", "vehicle"), ("auto", "vehicle"), ("boat", "vehicle")}
    keys = ["car", "vehicle", "auto", "<abstain>", "boat", "car", "<abstain>"]
    assert cluster_wordings(keys, said, entailed) == (0, 1, 0, 2, 3, 0, 2)
    assert cluster_wordings(keys, said, set()) == (0, 1, 2, 3, 4, 0, 3)


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (("contradiction", "neutral", "entailment"), 2),
        (("ENTAILMENT", "NEUTRAL", "CONTRADICTION"), 0),
        (("not_entailment", "entailment"), 1),
        (("entailment", "non-entailment"), 0),
    ],
)
def test_the_label_is_found_by_its_name(labels: tuple[str, ...], found: int) -> None:
    assert entailment_label("m", dict(enumerate(labels))) == found


def test_labels_that_do_not_say_are_told() -> None:
    told = r"has no single label that means entailment \(its labels are LABEL_0, LABEL_1\); give an"
    with pytest.raises(UserError, match=told):
        entailment_label("m", {0: "LABEL_0", 1: "LABEL_1"})


WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "?", "anna", "bob", "and")


@pytest.fixture
def nli(tmp_path: Path) -> str:
    """A model whose last layer is set by hand, so that it takes every pair for the same label."""
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
                            unk_token="[UNK]", model_max_length=32).save_pretrained(tmp_path)  # fmt: skip
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=16, max_position_embeddings=32,
                        id2label={0: "contradiction", 1: "entailment"},
                        label2id={"contradiction": 0, "entailment": 1})  # fmt: skip
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([0.0, 1.0]))
    model.save_pretrained(tmp_path)
    return str(tmp_path)


def test_a_model_that_takes_all_for_the_same_leaves_declines_apart(nli: str) -> None:
    meanings = open_clusterer(nli)
    assert isinstance(meanings, EntailmentClusterer)
    answers = JudgedAnswers("who?", ("anna", "bob", "Anna.", "i do not know", "bob and anna"),
                      ("answer", "answer", "answer", "abstain", "answer"))  # fmt: skip
    assert meanings.clusters([answers, answers]) == [(0, 0, 0, 1, 0)] * 2
    assert meanings.used().entailment == "entailment"
    with torch.no_grad():
        meanings._model.classifier.bias.copy_(torch.tensor([1.0, 0.0]))
    assert meanings.clusters([answers]) == [(0, 1, 0, 2, 3)]
