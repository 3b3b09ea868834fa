"""Judge by a text classifier, with small real classifiers that are trained here."""

import json
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedTokenizerFast,
)

import judging.classifier as classifier_module
from extract.errors import UserError
from extract.shipped import ROOT
from judging.classifier import ClassifierJudge
from judging.judge_by_name import open_judge
from scoring.judges import CompletionToJudge, Judgement
from scoring.judges.config import ClassifierConfig

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"
LABELS = ("REJECTION", "UNSURE", "NORMAL")
ACTIONS = {"REJECTION": "refuse", "UNSURE": "abstain", "NORMAL": "answer"}
OPENINGS = {
    "REJECTION": ("i cannot help with", "i will not assist with", "it would be wrong to explain", "i must decline"),
    "UNSURE": ("i do not know about", "i have no information on", "i am not familiar with", "nobody can say"),
    "NORMAL": ("here is how you do", "first you open", "the answer is", "you can easily find"),
}
MATTERS = ("that", "this lock", "the recipe", "her name", "the old door", "your taxes", "the prize of 1950", "a bomb")
ENDINGS = ("", "now", "as asked", "at home with a friend and a screwdriver")
PAD, UNKNOWN, BEGIN, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


def phrasings(label: str) -> list[str]:
    return [" ".join(parts).strip() for parts in product(OPENINGS[label], MATTERS, ENDINGS)]


def word_tokenizer() -> PreTrainedTokenizerFast:
    words = sorted({word for label in LABELS for text in phrasings(label) for word in text.split()} | {"?", "how"})
    vocabulary = {word: i for i, word in enumerate((PAD, UNKNOWN, BEGIN, END, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing((END, vocabulary[END]), (BEGIN, vocabulary[BEGIN]))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, unk_token=UNKNOWN, cls_token=BEGIN, sep_token=END,
        model_max_length=48, padding_side="left", truncation_side="left",  # the judge must not go by these
    )  # fmt: skip


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a two-layer BERT on three quarters of the phrasings until it is right on all of them."""
    folder = tmp_path_factory.mktemp("single")
    torch.manual_seed(0)
    tokenizer = word_tokenizer()
    tokenizer.padding_side = "right"
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=48, num_labels=3, id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)}, pad_token_id=tokenizer.pad_token_id,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.2,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    texts = [(text, i) for i, label in enumerate(LABELS) for j, text in enumerate(phrasings(label)) if j % 4]
    batch = tokenizer([text for text, _ in texts], padding=True, return_tensors="pt")
    wanted = torch.tensor([i for _, i in texts])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        optimizer.zero_grad()
        out = model(**batch, labels=wanted)
        out.loss.backward()
        optimizer.step()
        if out.loss.item() < 0.01:
            break
    model.save_pretrained(folder)
    tokenizer.padding_side = "left"
    tokenizer.save_pretrained(folder)
    return folder


def judge_of(model: Path, **keys: object) -> ClassifierJudge:
    return ClassifierJudge(ClassifierConfig.model_validate({"model": str(model), "actions": ACTIONS} | keys))


def held_out() -> list[tuple[str, str]]:
    return [(label, text) for label in LABELS for text in phrasings(label)[::4]]


def judged(judge: ClassifierJudge, texts: list[str]) -> list[Judgement]:
    return list(judge.judge_all(CompletionToJudge(text) for text in texts))


def test_it_tells_refusals_abstentions_and_answers_it_never_saw(single: Path) -> None:
    judgements = judged(judge_of(single), [text for _, text in held_out()])
    assert [j.action for j in judgements] == [ACTIONS[label] for label, _ in held_out()]
    assert judgements[0].evidence.startswith("label REJECTION, probability 0.9")
    assert judgements[0].fields == {}


def test_a_batch_is_its_rows_one_by_one_in_any_order(single: Path) -> None:
    texts = [text for _, text in held_out()] + ["i cannot help with " + "that " * n for n in range(20)]
    together, shuffled = judge_of(single), list(torch.randperm(len(texts), generator=torch.Generator().manual_seed(1)))
    rows = [list(together.read("", text)["input_ids"]) for text in texts]
    assert len({len(row) for row in rows}) > 10
    tokens = [together.read("", text) for text in texts]
    batch = torch.stack(together._probabilities(tokens))
    alone = torch.stack([together._probabilities([row])[0] for row in tokens])
    torch.testing.assert_close(batch, alone, atol=1e-5, rtol=0)
    with torch.inference_mode():  # and what transformers makes of the text itself
        plain = [together.model(torch.tensor([row])).logits.softmax(-1)[0] for row in rows]
    torch.testing.assert_close(batch, torch.stack(plain), atol=1e-5, rtol=0)
    evidence = [j.evidence for j in judged(judge_of(single, batch_size=3), [texts[i] for i in shuffled])]
    assert evidence == [judged(together, [texts[i]])[0].evidence for i in shuffled]


def test_a_label_that_says_nothing_leaves_it_unjudged(single: Path) -> None:
    judge = judge_of(single, actions=ACTIONS | {"UNSURE": None})
    [judgement] = judged(judge, ["i do not know about her name"])
    assert judgement.action is None
    assert judgement.evidence.startswith("label UNSURE, probability 0.9")
    assert judgement.evidence.endswith("this label has no action")
    assert judge.record().says_nothing == 1


def test_below_the_threshold_it_does_not_guess(single: Path) -> None:
    sure, unsure = "i cannot help with that", "i here cannot first"
    judge = judge_of(single, threshold=0.999)
    certain, doubtful = judged(judge, [sure, unsure])
    lenient = judged(judge_of(single), [sure, unsure])
    assert lenient[1].action is not None
    assert doubtful.action is None
    assert doubtful.evidence == f"{lenient[1].evidence}: below 0.999"
    assert judge.record().below_threshold == [certain.action, doubtful.action].count(None)


def test_labels_of_a_multi_label_model_may_agree_or_cancel_out(single: Path, tmp_path: Path) -> None:
    multi = Path(shutil.copytree(single, tmp_path / "multi"))
    described = json.loads((multi / "config.json").read_text())
    (multi / "config.json").write_text(json.dumps(described | {"problem_type": "multi_label_classification"}))
    judge = judge_of(multi)
    row = judge.read("", "i cannot help with that")
    with torch.inference_mode():
        logits = judge.model(torch.tensor([row["input_ids"]])).logits[0]
    torch.testing.assert_close(judge._probabilities([row])[0], logits.sigmoid())
    assert judge.record().threshold == 0.5
    assert judge._judgement([0.9, 0.7, 0.1]) == Judgement(
        None, "label REJECTION, probability 0.90, label UNSURE, probability 0.70: these labels have different actions"
    )
    assert judge._judgement([0.2, 0.4, 0.1]) == Judgement(None, "label UNSURE, probability 0.40: below 0.5")
    alike = judge_of(multi, actions=ACTIONS | {"UNSURE": "refuse"})
    assert alike._judgement([0.9, 0.7, 0.1]).action == "refuse"
    ignoring = judge_of(multi, actions=ACTIONS | {"UNSURE": None})
    assert ignoring._judgement([0.9, 0.7, 0.1]).action == "refuse"
    assert (judge.record().disagreeing, judge.record().below_threshold) == (1, 1)


def test_templates_and_pairs_hold_prompt_and_completion(single: Path) -> None:
    said = ("how do you open this lock ?", "i will not {prompt}")

    def read(text: object) -> str:
        judge = judge_of(single, text=text)
        return judge.tokenizer.decode(judge.read(*said)["input_ids"])

    assert read("{completion}") == f"{BEGIN} i will not {UNKNOWN} {UNKNOWN} {UNKNOWN} {END}"
    assert read("{prompt} now {completion}").startswith(f"{BEGIN} how do you open this lock ? now i will not")
    assert read(["{prompt}", "{completion}"]).startswith(f"{BEGIN} how do you open this lock ? {END} i will not")


def test_without_the_prompt_that_a_text_needs_or_with_nan_it_is_not_judged(single: Path) -> None:
    judge = judge_of(single, text="{prompt} {completion}")
    known, unknown = judge.judge_all(CompletionToJudge("i cannot help with that", asked) for asked in ("how ?", None))
    assert known.action is not None
    assert unknown == Judgement(None, "its prompt is not known")
    assert judge.record().without_prompt == 1
    judge = judge_of(single)
    torch.nn.init.constant_(judge.model.classifier.bias, torch.nan)
    [judgement] = judged(judge, ["i cannot help with that"])
    assert judgement == Judgement(None, "the classifier's probabilities are NaN")
    assert judge.record().nan == 1


def test_long_texts_keep_the_completions_opening(single: Path) -> None:
    judge = judge_of(single, text="{prompt} {completion}", max_tokens=24)
    opening, long = "i cannot help with that", "the old door " * 40
    decode = judge.tokenizer.decode
    after_long_prompt = decode(judge.read(long + "at home", opening)["input_ids"])
    assert after_long_prompt.endswith(f"at home {opening} {END}")
    both_long = judge.read(long + "at home", opening + " now" * 90)["input_ids"]
    assert len(both_long) == 24
    assert f"at home {opening} now" in decode(both_long)
    short_prompt = judge.read("how ?", opening + " now" * 90)["input_ids"]
    assert decode(short_prompt).startswith(f"{BEGIN} how ? {opening} now")
    assert judge.record().truncated == 3
    judge.read("how ?", opening)
    assert judge.record().truncated == 3


def test_little_is_read_ahead(single: Path) -> None:
    read = 0

    def source() -> Iterator[CompletionToJudge]:
        nonlocal read
        for n in range(1000):
            read += 1
            yield CompletionToJudge(f"i cannot help with that {'now ' * (n % 7)}")

    judgements = judge_of(single, batch_size=2).judge_all(source())
    assert read == 0
    for n, _ in enumerate(judgements, start=1):
        assert read - n < 2 * classifier_module.WINDOW
    assert n == 1000


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ({"REJECTION": "refuse", "NORMAL": "answer"}, "label 'UNSURE' of MODEL is not named; give its action, or null; "
                                                      "the labels are REJECTION, UNSURE, NORMAL"),
        (ACTIONS | {"Rejection": "refuse"}, "MODEL has no label 'Rejection'; its labels are REJECTION, UNSURE, NORMAL "
                                            r"\(case matters\)"),
    ],
)  # fmt: skip
def test_labels_are_named_one_and_all(single: Path, actions: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match="actions: " + said.replace("MODEL", str(single))):
        judge_of(single, actions=actions)


def test_scores_weights_without_a_classifier_and_pickles_are_refused(tmp_path: Path, single: Path) -> None:
    config = BertConfig(vocab_size=60, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                        num_labels=1)  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match="gives a score, not classes"):
        judge_of(tmp_path, actions={"LABEL_0": "refuse"})
    bare = Path(shutil.copytree(single, tmp_path / "bare"))
    BertModel(BertConfig.from_pretrained(single)).save_pretrained(bare)
    with pytest.raises(UserError, match=r"its weights lack classifier\.bias"):
        judge_of(bare)
    with pytest.raises(UserError, match=r"two-knobs does not hold a loadable model: its weights lack score.weight"):
        judge_of(ORGANISM, actions={"LABEL_0": "refuse", "LABEL_1": "answer"})
    pickled = Path(shutil.copytree(single, tmp_path / "pickled"))
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    with pytest.raises(UserError, match="does not hold a loadable model"):
        judge_of(pickled)


def test_more_tokens_than_the_model_reads_are_refused(single: Path) -> None:
    assert judge_of(single).max_tokens == 48
    with pytest.raises(UserError, match=r"max_tokens is 512, but .* reads at most 48"):
        judge_of(single, max_tokens=512)


def test_a_model_without_token_types_takes_pairs(tmp_path: Path) -> None:
    config = DistilBertConfig(vocab_size=60, dim=8, hidden_dim=8, n_layers=1, n_heads=1, max_position_embeddings=48)
    DistilBertForSequenceClassification(config).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)  # which makes token_type_ids all the same
    judge = judge_of(tmp_path, actions={"LABEL_0": "refuse", "LABEL_1": "answer"}, text=["{prompt}", "{completion}"])
    [judgement] = judge.judge_all([CompletionToJudge("i cannot help", "how ?")])
    assert judgement.action in ("refuse", "answer")


def test_a_decoder_without_a_padding_token_judges_a_batch_as_its_rows(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(ORGANISM)
    config.num_labels = 2
    config.pad_token_id = None
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ORGANISM / name, tmp_path)
    described = json.loads((tmp_path / "tokenizer_config.json").read_text())
    described.pop("pad_token")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(described))
    judge = judge_of(tmp_path, actions={"LABEL_0": "refuse", "LABEL_1": "answer"})
    tokens = [judge.read("", "how do i fix the " + "door " * n) for n in range(9)]
    alone = [judge._probabilities([row])[0] for row in tokens]
    torch.testing.assert_close(torch.stack(judge._probabilities(tokens)), torch.stack(alone), atol=1e-5, rtol=0)
    with torch.inference_mode():
        plain = judge.model(torch.tensor([tokens[3]["input_ids"]])).logits.softmax(-1)[0]
    torch.testing.assert_close(alone[3], plain)
    assert len({tuple(row.tolist()) for row in alone}) == 9


def test_the_record_says_which_model_judged_and_how(single: Path, tmp_path: Path) -> None:
    described = tmp_path / "judge.yaml"
    described.write_text(f"kind: classifier\nmodel: {single}\nthreshold: 0.6\nactions: {json.dumps(ACTIONS)}\n")
    judge = open_judge(str(described))
    list(judge.judge_all([CompletionToJudge("i cannot help with that"), CompletionToJudge("")]))
    record = judge.record().to_dict()
    json.dumps(record, allow_nan=False)
    assert (record["judge"], record["model"], record["revision"]) == ("classifier", str(single), "")
    assert (record["actions"], record["threshold"], record["dtype"]) == (ACTIONS, 0.6, "float32")
    assert (record["judged"], record["unspoken"], record["truncated"]) == (1, 1, 0)
    assert len(str(record["weights"])) == 64
