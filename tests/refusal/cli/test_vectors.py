"""`refusal vectors import` and `export` as their user meets them."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from extract.shipped import ROOT
from refusal import load_directions
from tests.support.one_line import one_line, printed

RUN = ROOT / "tests" / "fixtures" / "small_run"


def test_a_runs_direction_goes_out_for_llama_cpp_and_comes_back(cli, tmp_path: Path) -> None:
    out, back = tmp_path / "less.gguf", tmp_path / "back.safetensors"
    written = load_directions(RUN / "directions.safetensors")["normative_write"]
    said = printed(cli("vectors", "export", str(RUN), "--direction", "normative", "--scale", "-1", "--out", str(out)))
    first, last = said.splitlines()
    assert first == f"direction.4: norm {written.gap:.4g}, added to the output of block 4"
    assert last == f"{out}: scale -1; llama.cpp: --control-vector FILE"
    file = gguf.GGUFReader(out)
    assert {key: file.fields[key].contents() for key in file.fields if "." in key and not key.startswith("GGUF")} == {
        "general.architecture": "controlvector", "controlvector.model_hint": "llama", "controlvector.layer_count": 1,
    }  # fmt: skip
    (tensor,) = file.tensors
    assert (tensor.name, tensor.data.dtype) == ("direction.4", np.float32)
    np.testing.assert_allclose(tensor.data, -written.gap * written.vector, rtol=1e-5)

    said = printed(cli("vectors", "import", str(out), "--out", str(back)))
    assert said.splitlines()[1] == f"{back}: 1 of d_model 128"
    read = load_directions(back)["less_4"]
    np.testing.assert_allclose(read.vector, -written.vector, atol=1e-6)
    record = json.loads(printed(cli("vectors", "import", str(out), "--out", str(back), "--json")))
    assert record == [
        {"name": "less_4", "site": "resid_post", "layer": 4, "adds": pytest.approx(written.gap), "d_model": 128}
    ]


def test_layers_and_a_hint_are_as_given(cli, tmp_path: Path) -> None:
    out = tmp_path / "v.safetensors"
    layers = ["--layer", "2", "--layer", "5", "--model-hint", "qwen2"]
    said = cli("vectors", "export", str(RUN), "--direction", "epistemic_read", *layers, "--out", str(out), "--json")
    assert list(json.loads(printed(said))["norms"]) == ["direction.2", "direction.5"]
    read = load_directions(out)
    assert [(d.locus.layer, d.provenance["model_hint"]) for d in read.values()] == [(2, "qwen2"), (5, "qwen2")]


def test_mistakes_are_one_line(cli, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "v.gguf"))
    one_line(cli("vectors", "export", str(RUN), *out), "has 5 directions; choose by --direction: epistemic_read, ")
    one_line(cli("vectors", "export", str(RUN), "--direction", "x", *out), "has no direction 'x'; it has epistemic_")
    chosen = ("--direction", "normative", "--layer", "0")
    one_line(cli("vectors", "export", str(RUN), *chosen, *out), "adds nothing to the output of block 0")
    one_line(cli("vectors", "import", str(RUN), *out), "give a name that ends in .safetensors")
    one_line(cli("vectors", "import", str(tmp_path / "no.pt"), "--out", "x.safetensors"), "directions not found: ")
    assert list(tmp_path.iterdir()) == []
