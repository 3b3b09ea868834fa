"""Judge by a Hugging Face text classifier: labels are mapped to actions, uncertain completions are left unjudged.

Softmax heads: the most probable label counts if its probability reaches the threshold. Multi-label (sigmoid) heads:
every label that reaches the threshold counts (0.5 by default); labels with different actions leave the completion
unjudged. Heads with a single output give a score and no class; they are rejected.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import BatchEncoding, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from extract.backoff import TokenBudget
from extract.errors import UserError
from extract.model.loading import load_classifier
from extract.model.weights import fingerprint
from scoring.judges import CompletionToJudge, Judgement, JudgeRecord
from scoring.judges.config import ClassifierConfig
from scoring.judges.visible_text import text_to_judge

Encoding = dict[str, list[int]]  # tokenizer output for one text or pair: input_ids, attention_mask and others
USUAL_LENGTH = 512
WINDOW = 16  # batches read ahead; texts within the window are sorted by length
_MARK = re.compile(r"\{(prompt|completion)\}")
COUNTED = ("judged", "unspoken", "without_prompt", "says_nothing", "below_threshold", "disagreeing", "nan", "truncated")


class ClassifierJudge:
    """Judge completions by a text classifier, in batches; a UserError where `actions` does not name its labels."""

    def __init__(self, config: ClassifierConfig) -> None:
        self.config = config
        loaded = load_classifier(config.model, revision=config.revision, device=config.device)
        self.model: PreTrainedModel = loaded[0]
        self.tokenizer: PreTrainedTokenizerBase = loaded[1]
        self.revision: str = loaded[2]
        self.labels: list[str] = _labels(self.model.config, config)
        self.multi_label: bool = self.model.config.problem_type == "multi_label_classification"
        self.threshold: float = (0.5 if self.multi_label else 0.0) if config.threshold is None else config.threshold
        self.templates = (config.text,) if isinstance(config.text, str) else config.text
        self.max_tokens: int = _length(self.model, self.tokenizer, config)
        self._budget = TokenBudget(config.batch_size * self.max_tokens)
        self._counts: Counter[str] = Counter()

    def judge_all(self, completions: Iterable[CompletionToJudge]) -> Iterator[Judgement]:
        """Yield the judgement of each completion, in order; a window of WINDOW batches is read ahead."""
        rest = iter(completions)
        while window := list(islice(rest, WINDOW * self.config.batch_size)):
            yield from self._judge_window(window)

    def record(self) -> JudgeRecord:
        """Return the classifier, the meaning of its labels, and the counts of unjudged completions by reason."""
        return JudgeRecord(
            judge="classifier",
            model=self.config.model,
            revision=self.revision,
            weights=fingerprint(self.model),
            dtype=str(self.model.dtype).removeprefix("torch."),
            text=self.config.text,
            max_tokens=self.max_tokens,
            actions=dict(self.config.actions),
            multi_label=self.multi_label,
            threshold=self.threshold,
            **{name: self._counts[name] for name in COUNTED},
        )

    def _judge_window(self, window: Sequence[CompletionToJudge]) -> list[Judgement]:
        judged: dict[int, Judgement] = {}
        asked: dict[int, Encoding] = {}
        reads_prompt = any("{prompt}" in template for template in self.templates)
        for row, one in enumerate(window):
            text = text_to_judge(one.completion, one.prompt)
            if isinstance(text, Judgement):
                judged[row] = self._counted("unspoken", text)
            elif one.prompt is None and reads_prompt:
                judged[row] = self._counted("without_prompt", Judgement(None, "its prompt is not known"))
            else:
                asked[row] = self.read(one.prompt or "", text)
        for row, probabilities in zip(asked, self._probabilities(list(asked.values())), strict=True):
            judged[row] = self._judgement(probabilities.tolist())
        return [judged[row] for row in range(len(window))]

    def _probabilities(self, rows: Sequence[Encoding]) -> list[Float[Tensor, " label"]]:
        def work(places: list[int]) -> Float[Tensor, "row label"]:
            given = [rows[place] for place in places]
            batch: BatchEncoding = self.tokenizer.pad(given, return_tensors="pt", verbose=False)
            with torch.inference_mode():
                logits = self.model(**batch.to(self.model.device)).logits.float()
            return (logits.sigmoid() if self.multi_label else logits.softmax(dim=-1)).cpu()

        return self._budget.map([len(row["input_ids"]) for row in rows], work)

    def _judgement(self, probabilities: list[float]) -> Judgement:
        if any(map(math.isnan, probabilities)):
            return self._counted("nan", Judgement(None, "the classifier's probabilities are NaN"))
        ranked = sorted(zip(probabilities, self.labels, strict=True), reverse=True)
        reaching = [pair for pair in (ranked if self.multi_label else ranked[:1]) if pair[0] >= self.threshold]
        evidence = ", ".join(f"label {label}, probability {chance:.2f}" for chance, label in reaching or ranked[:1])
        if not reaching:
            return self._counted("below_threshold", Judgement(None, f"{evidence}: below {self.threshold:g}"))
        actions = {self.config.actions[label] for _, label in reaching} - {None}
        if not actions:
            return self._counted("says_nothing", Judgement(None, f"{evidence}: this label has no action"))
        if len(actions) > 1:
            return self._counted("disagreeing", Judgement(None, f"{evidence}: these labels have different actions"))
        return self._counted("judged", Judgement(actions.pop(), evidence))

    def _counted(self, what: str, judgement: Judgement) -> Judgement:
        self._counts[what] += 1
        return judgement

    def read(self, prompt: str, completion: str) -> Encoding:
        """Return the encoding; if it is too long, the start of the prompt is cut first, then the end."""
        tokens = self._encode(prompt, completion)
        if len(tokens["input_ids"]) <= self.max_tokens:
            return tokens
        self._counts["truncated"] += 1
        there, said = self._count(prompt), self._count(completion)
        room = self.max_tokens - (len(tokens["input_ids"]) - there - said)
        kept = max(room // 2, room - said, 0)  # tokens of the prompt, about
        ending = prompt if there <= kept else prompt[len(prompt) - len(prompt) * kept // there :]
        return self._encode(ending, completion, cut=True)

    def _encode(self, prompt: str, completion: str, *, cut: bool = False) -> Encoding:
        values = {"prompt": prompt, "completion": completion}
        texts = [_MARK.sub(lambda mark: values[mark[1]], template) for template in self.templates]
        limits = {"truncation": True, "max_length": self.max_tokens} if cut else {}
        return dict(self.tokenizer(*texts, verbose=False, **limits))

    def _count(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def _labels(model: PretrainedConfig, config: ClassifierConfig) -> list[str]:
    """Return the model's labels in order; `actions` must name each of them."""
    labels = [str(model.id2label[i]) for i in range(model.num_labels)]
    listed = ", ".join(labels)
    if len(labels) == 1 or model.problem_type == "regression":
        raise UserError(f"{config.model} gives a score, not classes; choose a classifier of at least two labels")
    if len(set(labels)) < len(labels):
        raise UserError(f"{config.model} has two labels with the same name: {listed}")
    if unknown := [label for label in config.actions if label not in labels]:
        raise UserError(f"actions: {config.model} has no label {unknown[0]!r}; its labels are {listed} (case matters)")
    if unnamed := [label for label in labels if label not in config.actions]:
        raise UserError(
            f"actions: label {unnamed[0]!r} of {config.model} is not named; give its action, or null; "
            f"the labels are {listed}"
        )
    return labels


def _length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: ClassifierConfig) -> int:
    positions = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    reads = min(int(tokenizer.model_max_length), int(positions))  # model_max_length is a huge number where unknown
    if config.max_tokens is not None and config.max_tokens > reads:
        raise UserError(f"max_tokens is {config.max_tokens}, but {config.model} reads at most {reads}")
    return config.max_tokens or min(reads, USUAL_LENGTH)
