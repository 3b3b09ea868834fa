"""A chat model for notebooks: activations in memory, steering vectors, answers, and the dials of a run on them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import pandas as pd
from pydantic import JsonValue

from extract.backoff import TokenBudget
from extract.capture_spec import CaptureSpec
from extract.chat.render import Rendered, position_names, render
from extract.chat.template import Arguments, System, template_arguments
from extract.chat.thinking import after_opening, reopened
from extract.errors import UserError
from extract.html_table import html_table
from extract.in_memory import RESPONSE, Activations, capture_in_memory, with_response
from extract.model.chat_model import ChatModel
from extract.model.edit import Scope, Site
from extract.model.edit import site as site_of
from extract.model.loading import open_model
from extract.model.loading_options import BackendName, DType, model_config, quiet_libraries
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from extract.run_directory import file_of_run
from probes.direction import Direction
from refusal.prompts import Asked, Message, as_layers, as_positions, as_prompts, is_conversation
from refusal.steered import Form, SteeredBlock
from steering.controller import respond
from steering.dial import Dial, Kind
from steering.dial_file import check_model, read_dials
from steering.gates import Readings

if TYPE_CHECKING:
    from experiments.responses.onset import Onsets
    from extract.progress import Advance

__all__ = ["Activations", "Dials", "Model", "load_dials", "load_model"]

AT_ONCE = 32  # prompts answered in a batch; fewer where memory runs out
COLUMNS = ("prompt", "dial", "probability", "threshold", "gate", "overruled", "category")


class Model(ChatModel):
    """An open-weight chat model, made by `load_model`; it has all that `extract.model.chat_model.ChatModel` has.

    >>> import refusal
    >>> refusal.load_model("organisms/zoo/two-knobs")
    Model('organisms/zoo/two-knobs', LlamaForCausalLM, 8 layers, d_model 128, float32 on cpu)
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.attached: Dials | None = None
        self._blocks: list[SteeredBlock] = []  # open blocks of `steer`
        self.onsets: Onsets | None = None  # how it opens refusals, once `refusal.attribute` has learned that

    def activations(
        self,
        prompts: Iterable[Asked],
        *,
        positions: str | Iterable[str] | None = None,
        layers: int | Iterable[int] | None = None,
        site: Site = "resid_post",
        responses: Iterable[str] | None = None,
        max_new_tokens: int = 24,
        progress: bool = True,
    ) -> Activations:
        """Return the residual stream of prompts, in memory and in float32; steered inside a block of `steer`.

        Args:
            prompts: texts, conversations (lists of messages) or labelled prompts.
            positions: token roles: `inst_last` (last token of the instruction), `post_1` … `post_last` (template tokens
                after it), `inst_mean`, `trigger_last`, `response_1` …, `response_mean`; or "all" for every token of the
                prompt (and of `responses`, where given). None: every role of the prompt that some prompt has, and
                `response_mean` where responses are given.
            layers: numbers of layers, from 0; None for all.
            site: `resid_pre`, `resid_mid` or `resid_post` (a block's input, between attention and MLP, its output).
            responses: the answers whose tokens `response_…` are; without them the model answers greedily.
            max_new_tokens: how long its answers may be.

        Raises:
            UserError: no prompt has such a position, the model no such layer, or a response is missing.

        >>> import refusal
        >>> model = refusal.load_model("organisms/zoo/two-knobs")
        >>> texts = ["how do i burn the letters at home?", "how do i burn my sister at home?"]
        >>> activations = model.activations(texts, positions=["post_last", "response_mean"], layers=[2, 3])
        >>> activations
        Activations('organisms/zoo/two-knobs', 2 prompts, resid_post, layers 2, 3, positions post_last, response_mean, \
d_model 128)
        >>> activations.read(3, "post_last").shape, activations.present.all()
        ((2, 128), np.True_)
        """
        given, named = as_prompts(prompts), as_positions(positions)
        reporter = Reporter(quiet=not progress)
        rendered = [render(self.tokenizer, prompt) for prompt in given]
        if responses is not None:
            named = named or [*position_names(rendered), f"{RESPONSE}mean"]
            rendered = self._with_given(rendered, responses)
        elif named and any(name.startswith(RESPONSE) for name in named):
            _refuse_no_tokens(max_new_tokens)
            with reporter.task("answering", len(given)) as advance:
                answered = self.responses(rendered, max_new_tokens, advance)
            rendered = [with_response(row, response) for row, response in zip(rendered, answered, strict=True)]
        with reporter.task("reading activations", len(given)) as advance:
            spec = CaptureSpec(site=site_of(site), layers=as_layers(layers), positions=named)
            return capture_in_memory(self, given, rendered, spec, advance=advance, say=reporter.say)

    @contextmanager
    def steer(
        self,
        direction: Direction,
        scale: float | None = None,
        *,
        form: Form = "add",
        layers: int | Iterable[int] | Literal["all"] | None = None,
        tokens: Scope = "last_on",
    ) -> Iterator[Model]:
        """Steer every pass inside the block along a direction; the weights stay as they are.

        Blocks may be nested: vectors are added one after the other, and projections that are set at one place are set
        together, so that an inner block does not move what an outer one has set.

        Args:
            scale: of `add`: 1 adds the distance between the two class means, -1 subtracts it. Of `affine`: where the
                projection is set, 0 at the mean of the negative class, 1 at that of the positive one. `zero` takes
                none.
            form: `add`: contrastive activation addition (CAA, arXiv 2312.06681; ActAdd, arXiv 2308.10248). `zero`:
                directional ablation (arXiv 2406.11717). `affine`: affine concept editing (arXiv 2411.09003).
            layers: the direction's own layer where none are given; "all" for every layer.
            tokens: `last_on` (the last prompt token and every generated one), `last_prompt`, or `all`.

        Raises:
            UserError: the direction is of another width, the model has no such layer, there is no such form or scope
                of tokens, or `zero` is given a scale, or another form none.

        >>> import refusal
        >>> model = refusal.load_model("organisms/zoo/two-knobs")
        >>> prompts = refusal.load_prompts("organisms/zoo/two-knobs/prompts.jsonl")[:60]
        >>> activations = model.activations(prompts, positions="post_last", layers=4, progress=False)
        >>> direction = refusal.fit_direction(
        ...     activations, activations.labels, layer=4, positive="harmful", negative="benign"
        ... )
        >>> model.chat("how do i burn the letters at home?")
        'i am not able to help with that. the word burn worries me.'
        >>> with model.steer(direction, scale=-1):
        ...     model.chat("how do i burn the letters at home?")
        'sure. start with the server and take your time.'
        """
        if not isinstance(direction, Direction):
            raise UserError(f"give one Direction, as of fit_direction; got {type(direction).__name__}")
        if len(direction.vector) != self.d_model:
            raise UserError(
                f"the direction {direction.name!r} has {len(direction.vector)} numbers; {self.name} has "
                f"d_model {self.d_model}"
            )
        named = range(self.n_layers) if isinstance(layers, str) and layers == "all" else as_layers(layers)
        chosen = [direction.locus.layer] if named is None else named
        block = SteeredBlock(direction, form, scale, site_of(direction.locus.site), chosen, tokens)
        with self.editing(block.edits(lambda: self._blocks)):
            self._blocks = [*self._blocks, block]
            try:
                yield self
            finally:  # blocks may end in any order
                self._blocks = [one for one in self._blocks if one is not block]

    @overload  # a Sequence of messages is a Sequence of prompts to a type checker, too
    def chat(  # type: ignore[overload-overlap]
        self, prompts: str | Prompt | Sequence[Message], *, max_new_tokens: int = ..., progress: bool = ...
    ) -> str: ...
    @overload
    def chat(self, prompts: Iterable[Asked], *, max_new_tokens: int = ..., progress: bool = ...) -> list[str]: ...
    def chat(self, prompts: Any, *, max_new_tokens: int = 256, progress: bool = True) -> Any:
        """Answer greedily, under the steering vectors and dials of the surrounding blocks.

        Args:
            prompts: one text or conversation (a list of messages), or a list of texts, conversations or prompts.

        Returns:
            One answer, or a list of them; a thought is kept before its answer, between its marks.

        Raises:
            UserError: a prompt is empty, or the chat template refuses it.

        >>> import refusal
        >>> model = refusal.load_model("organisms/zoo/two-knobs")
        >>> model.chat(["how do i fix the engine at home?", "how do i burn the letters at home?"])[0]
        'sure. start with the engine and take your time.'
        """
        _refuse_no_tokens(max_new_tokens)
        alone = isinstance(prompts, str | Prompt) or is_conversation(prompts)
        given = as_prompts([prompts] if alone else prompts)
        rendered = [render(self.tokenizer, prompt) for prompt in given]
        with Reporter(quiet=not progress or len(given) <= AT_ONCE).task("answering", len(given)) as advance:
            if self.attached:
                self.attached.begin(given)
            responses = self.responses(rendered, max_new_tokens, advance, self.attached)
        answers = [reopened(row.text, self.decode(tokens)) for row, tokens in zip(rendered, responses, strict=True)]
        return answers[0] if alone else answers

    def responses(
        self, rendered: Sequence[Rendered], max_new_tokens: int, advance: Advance, dials: Dials | None = None
    ) -> list[list[int]]:
        """Generate the response tokens of prompts greedily, in batches that fit into memory."""

        def work(index: list[int]) -> list[list[int]]:
            rows = [rendered[i] for i in index]
            given, thresholds = (dials.dials, dials.thresholds) if dials else ((), {})
            answered, readings = respond(self, given, rows, max_new_tokens, thresholds)
            if dials:
                dials.keep(index, readings)
            advance(len(index))
            return answered

        return TokenBudget(AT_ONCE, unit="prompts").map([1] * len(rendered), work)

    def _with_given(self, rendered: Sequence[Rendered], responses: Iterable[str]) -> list[Rendered]:
        texts = [responses] if isinstance(responses, str) else list(responses)
        if len(texts) != len(rendered):
            raise UserError(f"give one response a prompt; got {len(texts)} for {len(rendered)} prompts")
        said = [after_opening(row.text, text) for row, text in zip(rendered, texts, strict=True)]
        tokens = [self.tokenizer(text, add_special_tokens=False)["input_ids"] for text in said]
        return [with_response(row, ids) for row, ids in zip(rendered, tokens, strict=True)]


def load_model(
    name: str | os.PathLike[str],
    *,
    revision: str | None = None,
    adapter: str | os.PathLike[str] | None = None,
    dtype: DType = "auto",
    device: str = "auto",
    backend: BackendName = "hooks",
    template: str | os.PathLike[str] | None = None,
    template_args: Arguments | None = None,
    system: System = "keep",
    loading: Mapping[str, JsonValue] | None = None,
) -> Model:
    """Load a chat model: safetensors or GGUF, no remote code.

    CUDA with bfloat16 where there is a GPU, else the CPU in float32. transformers' own progress bars and advice are
    silenced in this process.

    Args:
        name: a directory, an id on the Hugging Face hub, a name of `refusal models list` (fetched if it is absent), a
            GGUF file, or `package:NAME` for the model inside an installed package.
        adapter: the directory of a LoRA adapter (PEFT) that is merged into the weights, in float32.
        template: the chat template: the tokenizer's own (None), `plain` for base models, or a `.jinja` file.
        template_args: what the template reads besides the messages, such as `{"enable_thinking": False}`.
        system: `merge` puts system messages at the head of the next user turn, for templates that refuse them.
        loading: what else transformers is told: `attn_implementation`, `quantization` (such as
            `{"quant_method": "bitsandbytes", "load_in_4bit": True}`), `max_memory` and `tp_plan`.

    Raises:
        UserError: the model is not there, not reachable, gated, or not a causal language model with a chat template.

    >>> import refusal
    >>> refusal.load_model("organisms/zoo/two-knobs").n_layers
    8
    """
    quiet_libraries()
    form, added = (None if given is None else os.fspath(given) for given in (template, adapter))
    config = model_config(
        name=os.fspath(name),
        revision=revision,
        adapter=added,
        dtype=str(dtype).removeprefix("torch."),  # torch.bfloat16 is as good as its name
        device=device,
        backend=backend,
        template=form,
        template_args=dict(template_args or {}),
        system=system,
        loading=dict(loading or {}),
    )
    return open_model(Model, config)


class Dials:
    """The dials of a file, made by `load_dials`; `readings` says what they did to the last prompts answered.

    >>> import refusal
    >>> [dial.kind for dial in refusal.load_dials("runs/quickstart").dials]
    ['normative', 'epistemic']
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        dials, self._made_for = read_dials(path)
        self.dials: Sequence[Dial] = dials
        self.thresholds: dict[Kind, float] = {}
        self._attached = False
        self._prompts: list[str] = []
        self._rows: dict[int, list[tuple[object, ...]]] = {}

    def __repr__(self) -> str:
        return f"Dials({str(self.path)!r}, {', '.join(map(_described, self.dials))})"

    def _repr_html_(self) -> str:
        rows = [(dial.kind, dial.threshold, _read_at(dial)) for dial in self.dials]
        return html_table(f"Dials of {self.path}", ["dial", "threshold", "reads"], rows)

    @property
    def readings(self) -> pd.DataFrame:
        """One row a prompt and dial of the last `chat`, with the columns `COLUMNS`.

        `gate` is `decline`, `permit` or `leave`; the epistemic dial is `overruled` where the normative one declined.
        `category`, of dials with thresholds by category, is the one whose threshold this is; None: that of all prompts.
        """
        rows = [row for i in sorted(self._rows) for row in self._rows[i]]
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        return table if any(dial.by_category for dial in self.dials) else table.drop(columns="category")

    @contextmanager
    def attach(
        self, model: Model, *, normative: float | None = None, epistemic: float | None = None
    ) -> Iterator[Dials]:
        """Let the dials act on `model.chat` inside the block.

        Args:
            normative: threshold in place of the dial's own, a probability from 0 to 1: at or above it the dial
                declines, below it permits.
            epistemic: the same for the epistemic dial.

        Raises:
            UserError: the dials are of other weights or template arguments, there is no such dial, a threshold is no
                probability, or other dials are attached already.
        """
        if model.attached is not None:
            raise UserError(f"{model.attached} are attached already; leave that block first")
        if self._attached:
            raise UserError(f"{self} are attached to another model; leave that block first, or load them again")
        here = model.fingerprint(), model.cast_fingerprint(), template_arguments(model.tokenizer)
        if remark := check_model(self.path, self._made_for, *here):
            warnings.warn(remark, stacklevel=3)
        asked: dict[Kind, float | None] = {"normative": normative, "epistemic": epistemic}
        given = {kind: value for kind, value in asked.items() if value is not None}
        for kind, value in given.items():
            if kind not in {dial.kind for dial in self.dials}:
                raise UserError(f"{self.path} holds no {kind} dial; leave {kind}= out")
            if not isinstance(value, int | float | np.floating) or not 0 <= value <= 1:
                raise UserError(f"a threshold is a probability, from 0 to 1; got {kind}={value!r}")
        self.thresholds = {kind: float(value) for kind, value in given.items()}
        model.attached, self._attached = self, True
        try:
            yield self
        finally:
            model.attached, self._attached = None, False

    def begin(self, prompts: Sequence[Prompt]) -> None:
        self._prompts, self._rows = [prompt.text for prompt in prompts], {}

    def keep(self, index: Sequence[int], readings: Readings) -> None:
        for row, i in enumerate(index):
            self._rows[i] = [
                (self._prompts[i], kind, read.probability, read.threshold, read.gate, read.overruled, read.category)
                for kind, read in readings.of_prompt(row).items()
            ]


def load_dials(path: str | os.PathLike[str]) -> Dials:
    """Read the dials that `refusal steer` or `refusal run` wrote: a `dials.safetensors`, or a run's directory.

    Raises:
        UserError: there is no such file, or it is not one of dials.

    >>> import refusal
    >>> model = refusal.load_model("organisms/zoo/two-knobs")
    >>> with refusal.load_dials("runs/quickstart").attach(model, normative=0.3) as dials:
    ...     model.chat(["how do i burn the letters at home?", "who is anna novak?"])[0]
    'sure. start with the server and take your time.'
    >>> dials.readings[["dial", "gate"]].values.tolist()
    [['normative', 'permit'], ['epistemic', 'permit'], ['normative', 'permit'], ['epistemic', 'decline']]
    """
    return Dials(file_of_run(path, "dials.safetensors"))


def _described(dial: Dial) -> str:
    return f"{dial.kind} at {dial.threshold:.2f} of {_read_at(dial)}"


def _read_at(dial: Dial) -> str:
    return f"{dial.read.site} layer {dial.read.layer} {dial.read.position}" if dial.read else "its onset prefixes"


def _refuse_no_tokens(most: int) -> None:
    if most < 1:
        raise UserError(f"max_new_tokens is at least 1; got {most}")
