"""GGUF files as models: dequantised once, with the weights, tokenizer and template in them; one line a mistake."""

from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
import torch

from extract.chat.render import render
from extract.model import source
from extract.model.loading import load_model
from extract.model.source import UNCHECKED_VARIABLE
from extract.progress import Reporter
from extract.shipped import CACHE_VARIABLE
from tests.extract.conftest import ask
from tests.support.one_line import mistake
from tests.support.tiny_gguf import tiny_llama, write_gguf


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def problem(name: Path) -> str:
    return mistake(load_model, str(name), device="cpu")


def test_a_file_holds_the_weights_tokenizer_and_template(tmp_path: Path, cache: Path) -> None:
    written = tiny_llama()
    path = write_gguf(tmp_path / "tiny.gguf", written)
    model = load_model(str(path), device="cpu")
    assert model.dtype == torch.float32
    for name, weight in written.state_dict().items():
        torch.testing.assert_close(model.model.state_dict()[name], weight, rtol=0, atol=0)
    rendered = render(model.tokenizer, ask("the hat?"))
    assert rendered.text == "<|user|>the hat?<|model|>"
    ids = torch.tensor([list(rendered.token_ids)])
    torch.testing.assert_close(model.model(ids).logits, written(ids).logits)
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("kind", ["Q5_0", "Q8_0", "F16"])
def test_numbers_of_few_bits_are_dequantised_each_to_its_place(tmp_path: Path, kind: str) -> None:
    written = tiny_llama()
    path = write_gguf(tmp_path / "tiny.gguf", written, matrices=gguf.GGMLQuantizationType[kind])
    held = load_model(str(path), device="cpu").model.state_dict()
    for name, weight in written.state_dict().items():
        step = weight.abs().max().item() / {"Q5_0": 15, "Q8_0": 127, "F16": 2**11}[kind]
        torch.testing.assert_close(held[name], weight, rtol=0, atol=step if weight.ndim > 1 else 0)
        assert weight.ndim == 1 or not torch.equal(held[name], weight)


def test_it_is_checked_with_a_thread_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, usual, seen = write_gguf(tmp_path / "tiny.gguf", tiny_llama()), torch.get_num_threads(), list[int]()
    perplexity = source._perplexity
    monkeypatch.setattr(
        source, "_perplexity", lambda *given: seen.append(torch.get_num_threads()) or perplexity(*given)
    )
    try:
        for threads in (3, 1):
            torch.set_num_threads(threads)
            source._dequantise(path, tmp_path, Reporter(quiet=True))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(usual)
    assert seen == [2, 1]


def test_the_file_is_read_once_behind_a_bar_of_this_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path, readings, read = write_gguf(tmp_path / "tiny.gguf", tiny_llama()), [], gguf.GGUFReader.__init__
    monkeypatch.setattr(gguf.GGUFReader, "__init__", lambda self, *given: readings.append(given) or read(self, *given))
    for _ in range(2):
        load_model(str(path), device="cpu")
    assert len(readings) == 1
    out, err = capfd.readouterr()
    note, bar = err.splitlines()
    assert (out, note) == ("", "Note: dequantising tiny.gguf into the cache, once")
    assert bar.startswith("dequantising                         21/21, ")


def test_a_directory_that_holds_one_file_is_that_model(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "model").mkdir()
    path = write_gguf(tmp_path / "model" / "tiny.gguf", tiny_llama())
    by_file, by_folder = (load_model(str(name), device="cpu") for name in (path, path.parent))
    assert by_file.fingerprint() == by_folder.fingerprint()
    assert len(list(cache.iterdir())) == 1
    other = write_gguf(path.with_name("other.gguf"), tiny_llama(seed=1))
    assert f"{path.parent} holds 2 GGUF files; name one, such as {other}" in problem(path.parent)


def test_another_file_of_the_same_name_is_another_model(tmp_path: Path) -> None:
    found = [load_model(str(write_gguf(tmp_path / "tiny.gguf", tiny_llama(seed))), device="cpu").fingerprint()
             for seed in (0, 1, 0)]  # fmt: skip
    assert found[0] == found[2] != found[1]


def cut(path: Path, share: float) -> None:
    path.write_bytes(write_gguf(path, tiny_llama()).read_bytes()[: int(path.stat().st_size * share)])


def without_weights(path: Path) -> None:
    model = tiny_llama()
    del model.model.layers[1].mlp.up_proj, model.model.layers[0].input_layernorm
    write_gguf(path, model)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: cut(path, 0.3), " is not a GGUF model that can be read: "),
        (lambda path: cut(path, 0.9), " is not a GGUF model that can be read: "),
        (lambda path: path.write_bytes(b"PK\3\4 not this"), " is not a GGUF file"),
        (lambda path: write_gguf(path, tiny_llama(), architecture="no-such-one"), "no-such-one"),
        (lambda path: write_gguf(path, tiny_llama(), tokenizer=False), " is not a GGUF model that can be read: "),
        (
            without_weights,
            ": it lacks model.layers.0.input_layernorm.weight (2 in all)",
        ),  # else random ones
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_leaves_nothing(
    tmp_path: Path, cache: Path, write: Callable[[Path], object], said: str
) -> None:
    path = tmp_path / "x.gguf"
    write(path)
    message = problem(path)
    assert str(path) in message
    assert said in message
    assert not cache.exists() or not list(cache.iterdir())


def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, cache: Path, small_files: Callable[[int], None]
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_llama())
    small_files(20_000)  # less than its weights
    said = problem(path)
    assert said.startswith(f"the cache {cache}")
    assert "File too large" in said
    assert not list(cache.iterdir())


def test_a_file_without_a_chat_template(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_llama(), template=False)
    assert "chat template" in problem(path)
    assert load_model(str(path), device="cpu", template="plain").n_layers == 2


def test_a_file_that_loads_and_computes_nonsense_is_refused_with_the_figure(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sure = tiny_llama()
    sure.lm_head.weight.data *= 100  # sure of the wrong tokens; as it was, all 36 are about as likely: perplexity 36
    path = write_gguf(tmp_path / "sure.gguf", sure)
    said = problem(path)
    assert said.startswith(f"{path} loads but computes nonsense: its perplexity on ten plain English sentences is ")
    assert said.endswith(f"or set {UNCHECKED_VARIABLE}=1 for a model that knows no English")
    assert float(said.split("sentences is ")[1].split(", expected under 500")[0].replace(",", "")) > 500
    assert not list(cache.iterdir())
    monkeypatch.setenv(UNCHECKED_VARIABLE, "1")
    torch.testing.assert_close(load_model(str(path), device="cpu").model.lm_head.weight, sure.lm_head.weight)
    monkeypatch.delenv(UNCHECKED_VARIABLE)
    assert problem(path) == said  # what was loaded unchecked counts only there


def test_weights_that_are_not_numbers_are_nonsense(tmp_path: Path) -> None:
    broken = tiny_llama()
    broken.model.norm.weight.data[0] = float("nan")
    assert "sentences is nan, expected under 500" in problem(write_gguf(tmp_path / "nan.gguf", broken))
