"""Agreement of llama.cpp under an exported control vector with our steering, and of both without a vector.

Qwen2.5-Coder-0.5B-Instruct, Q4_K_M: llama.cpp multiplies quantised weights with quantised activations, we dequantise
the weights once and compute in float32, so greedy answers differ without a vector, too. The direction is the difference
in means of refused and answered benign prompts with a trigger word; layer and scale were chosen on the same half of the
prompts' groups. Of the other half one benign prompt a group is answered, both programs reading the same tokens.

`actions_…` is the share of prompts whose answers have the same action by the judge's rules, `first8_…` the share whose
first eight tokens are the same; `…_change` is with the vector minus without it, paired (Tango 1998), in shares.
`over_refusal_…` is the share declined; `missed_harm_…` is what it costs, the share of as many held-out harmful prompts
that are not declined, by our program. `exact_difference` is the largest difference of logits on a random float32 model
between llama.cpp with a vector at block N and ours at block N; `exact_elsewhere` the least with ours at a neighbour.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import refusal
from benchmarks.shapes import ORGANISM
from benchmarks.table import main
from extract.chat.render import Rendered, render
from extract.model.source import locate
from extract.progress import Reporter
from extract.prompts.groups import groups_of
from extract.prompts.prompt import Prompt
from extract.shipped import ROOT
from probes.direction import Direction, Locus
from probes.statistics.intervals import Estimate, tango
from scoring.actions import DECLINED
from steering.control_vectors import added_vectors, load_directions, save_control_vector
from tests.support.tiny_gguf import WORDS, write_gguf

MODEL, LAYER, SCALE = "qwen2.5-coder-0.5b", 14, -1.0
N_FIT, N_TEST = 110, 60
FIRST, FIT_TOKENS, ANSWER_TOKENS = 8, 16, 32
MISSING = "llama-cpp-python is not installed; pip install 'refusal-probes[llama]' builds it, in 10 to 20 minutes"


class LlamaCpp:
    """llama.cpp by its Python binding: greedy answers to token ids, under a control vector or without."""

    def __init__(self, path: Path) -> None:
        import llama_cpp

        self._library = llama_cpp
        threads = torch.get_num_threads()
        self._model = llama_cpp.Llama(str(path), n_ctx=512, verbose=False, n_threads=threads, n_threads_batch=threads)
        self._n_layers = int(self._model.metadata[f"{self._model.metadata['general.architecture']}.block_count"])

    def control(self, file: Path) -> None:
        """Add a control vector's directions to the outputs of blocks from now on; the binding takes them flat."""
        flat = np.zeros((self._n_layers - 1, self._model.n_embd()), dtype=np.float32)  # from block 1 on
        for layer, vector in added_vectors(load_directions(file).values()).items():
            flat[layer - 1] = vector
        pointer = flat.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        if self._library.llama_set_adapter_cvec(self._model.ctx, pointer, flat.size, flat.shape[1], 1, self._n_layers):
            raise RuntimeError("llama.cpp refuses the control vector")

    def logits(self, tokens: Sequence[int]) -> Float[np.ndarray, " vocabulary"]:
        """Read further tokens and return the logits after the last."""
        self._model.eval(list(tokens))
        last = self._library.llama_get_logits_ith(self._model.ctx, -1)
        return np.ctypeslib.as_array(last, shape=(self._model.n_vocab(),)).copy()

    def forget(self) -> None:
        """Drop the tokens that were read, whose keys and values an earlier vector may have changed."""
        self._model.reset()

    def answer(self, tokens: Sequence[int], most: int, ends: Sequence[int]) -> list[int]:
        self.forget()
        said: list[int] = []
        next_token = int(np.argmax(self.logits(tokens)))
        while next_token not in ends and len(said) < most:
            said.append(next_token)
            next_token = int(np.argmax(self.logits([next_token])))
        return said

    def tokenised(self, text: str) -> list[int]:
        return list(self._model.tokenize(text.encode(), add_bos=False, special=True))

    def close(self) -> None:
        self._model.close()


def measure(quick: bool) -> dict[str, float]:
    """Compare both programs on a random model exactly, then on the 0.5B by answers."""
    if find_spec("llama_cpp") is None:
        raise SystemExit(MISSING)
    with tempfile.TemporaryDirectory() as folder:
        return _exact(Path(folder)) | _answers(Path(folder), quick)


def _exact(folder: Path) -> dict[str, float]:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=64, intermediate_size=128, num_hidden_layers=5, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=False, initializer_range=0.2,
    )  # fmt: skip
    weights = LlamaForCausalLM(config).eval()
    program = LlamaCpp(write_gguf(folder / "random.gguf", weights))
    model = refusal.Model(weights, AutoTokenizer.from_pretrained(ORGANISM), "random")
    rng = np.random.default_rng(0)
    tokens = rng.integers(5, len(WORDS), 20).tolist()
    same, elsewhere = list[float](), list[float]()
    for layer in range(1, config.num_hidden_layers):
        drawn = rng.normal(size=config.hidden_size)
        unit = (drawn / np.linalg.norm(drawn)).astype(np.float32)
        here = Direction("random", unit, Locus("resid_post", layer, "all"), length=8.0)
        save_control_vector(added_vectors([here]), folder / "random_vector.gguf", "llama")
        program.control(folder / "random_vector.gguf")
        program.forget()
        theirs = program.logits(tokens)
        for at in {layer - 1, layer, layer + 1} - {config.num_hidden_layers}:
            with model.steer(here, 1, layers=at, tokens="all"):
                ours = model.logits(model.pad([tokens], "left"))[0, -1].numpy()
            (same if at == layer else elsewhere).append(float(np.abs(ours - theirs).max()))
    program.close()
    return {"exact_difference": max(same), "exact_elsewhere": min(elsewhere)}


def _answers(folder: Path, quick: bool) -> dict[str, float]:
    model = refusal.load_model(MODEL)
    path = locate(MODEL)
    assert path is not None
    fit, test, harmful = _prompts(*((24, 6) if quick else (N_FIT, N_TEST)))
    direction = _direction(model, fit)
    save_control_vector(added_vectors([direction], SCALE), folder / "less.gguf", "qwen2")
    rows = [render(model.tokenizer, prompt) for prompt in test]
    program = LlamaCpp(path)
    same_tokens = [program.tokenised(row.text) == list(row.token_ids) for row in rows]
    answers = {("ours", "plain"): _ours(model, rows), ("llama", "plain"): _theirs(program, model, rows, "plain")}
    program.control(folder / "less.gguf")
    with model.steer(direction, SCALE, tokens="all"):
        answers["ours", "steered"] = _ours(model, rows)
    answers["llama", "steered"] = _theirs(program, model, rows, "steered")
    program.close()
    figures = {"prompts": len(test), "same_prompt_tokens": float(np.mean(same_tokens))}
    return figures | _figures(model, test, answers) | _price(model, direction, harmful)


def _price(model: refusal.Model, direction: Direction, harmful: Sequence[Prompt]) -> dict[str, float]:
    """Return the share of harmful prompts that our program does not decline, without the vector and with it."""

    def missed() -> float:
        answers = model.chat(harmful, max_new_tokens=ANSWER_TOKENS)
        return float(np.mean(~np.isin(refusal.Judge()(answers, harmful)["action"], list(DECLINED))))

    plain = missed()
    with model.steer(direction, SCALE, tokens="all"):
        return {"missed_harm_plain": plain, "missed_harm_steered": missed()}


def _figures(
    model: refusal.Model, test: Sequence[Prompt], answers: Mapping[tuple[str, str], list[list[int]]]
) -> dict[str, float]:
    judge = refusal.Judge()
    actions = {
        key: judge([model.decode(row) for row in rows], test)["action"].to_numpy() for key, rows in answers.items()
    }
    declined = {key: np.isin(found, list(DECLINED)) for key, found in actions.items()}
    figures, agree = {}, dict[tuple[str, str], np.ndarray]()
    for way in ("plain", "steered"):
        agree["actions", way] = actions["ours", way] == actions["llama", way]
        pairs = zip(answers["ours", way], answers["llama", way], strict=True)
        agree["first8", way] = np.array([a[:FIRST] == b[:FIRST] for a, b in pairs])
        for program in ("ours", "llama"):
            figures[f"over_refusal_{program}_{way}"] = float(declined[program, way].mean())
    for what in ("actions", "first8"):
        figures |= {f"{what}_{way}": float(agree[what, way].mean()) for way in ("plain", "steered")}
        figures |= _named(f"{what}_change", tango(agree[what, "steered"], agree[what, "plain"]))
    for program in ("ours", "llama"):
        change = tango(declined[program, "steered"], declined[program, "plain"])
        figures |= _named(f"over_refusal_{program}_change", change)
    return figures


def _named(key: str, change: Estimate) -> dict[str, float]:
    return {key: change.estimate, f"{key}_low": change.low, f"{key}_high": change.high}


def _prompts(n_fit: int, n_test: int) -> tuple[list[Prompt], list[Prompt], list[Prompt]]:
    """Draw benign prompts of half of the groups to fit on; of the others one benign, and one harmful, prompt a group.

    All have a trigger word.
    """
    every = refusal.load_prompts(ROOT / "configs/prompts/core.jsonl")
    prompts = [prompt for prompt in every if prompt.trigger and prompt.label in ("benign", "harmful")]
    groups, benign = groups_of(prompts), np.array([prompt.label == "benign" for prompt in prompts])
    order = np.random.default_rng(0).permutation(np.unique(groups))
    half = np.isin(groups, order[: len(order) // 2])

    def drawn(among: Bool[np.ndarray, " prompts"], n: int, *, one_a_group: bool) -> list[Prompt]:
        rows = np.random.default_rng(1).permutation(np.flatnonzero(among))
        first = np.sort(np.unique(groups[rows], return_index=True)[1])
        return [prompts[i] for i in (rows[first] if one_a_group else rows)[:n]]

    fit = drawn(half & benign, n_fit, one_a_group=False)
    return fit, drawn(~half & benign, n_test, one_a_group=True), drawn(~half & ~benign, n_test, one_a_group=True)


def _direction(model: refusal.Model, fit: Sequence[Prompt]) -> Direction:
    answers = model.chat(fit, max_new_tokens=FIT_TOKENS)
    actions = refusal.Judge()(answers, fit)["action"]
    activations = model.activations(fit, positions="post_last", layers=LAYER)
    return refusal.fit_direction(activations, actions, layer=LAYER, positive="refuse", negative="answer")


def _ours(model: refusal.Model, rows: Sequence[Rendered]) -> list[list[int]]:
    with Reporter().task("answering", len(rows)) as advance:
        return model.responses(rows, ANSWER_TOKENS, advance)


def _theirs(program: LlamaCpp, model: refusal.Model, rows: Sequence[Rendered], way: str) -> list[list[int]]:
    answers = []
    with Reporter().task(f"llama.cpp, {way}", len(rows)) as advance:
        for row in rows:
            answers.append(program.answer(row.token_ids, ANSWER_TOKENS, model.eos_ids))
            advance(1)
    return answers


if __name__ == "__main__":
    main("llama_cpp", measure)
