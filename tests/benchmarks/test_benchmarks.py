"""Benchmarks run and write their keys; the numbers are not checked."""

import json
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from benchmarks import llama_cpp
from benchmarks.llama_cpp import MISSING
from benchmarks.training.labelled import COMPLETIONS
from extract.shipped import ROOT
from tests.support.browser import CHROMIUM

PARTS = ("low", "point", "high")
KEYS = {
    "page": {"megabytes", "seconds_to_use", "seconds_to_all", "ratio_vs_empty_page"},
    "judge": {
        "xstest_compliance_accuracy", "xstest_compliance_two_models", "xstest_three_class_accuracy",
        "xstest_three_class_two_models", "xstest_partial_found", "human_compliance_agreement",
        "human_three_class_agreement", "dna_unwilling_or_helped", "dna_unwilling_or_follows", "dna_declined",
        "dna_helped_ChatGPT", "dna_helped_Claude", "dna_helped_llama2-7b-chat", "refuse_vs_abstain_accuracy",
        "abstentions_found", "refusals_found", "orfuzz_answered", "orfuzz_gemma", "orfuzz_llama3", "gpt35_precision",
        "gemma_declined", "coconot_not_declined", "calibration_error", "completions_per_s", "partial_found",
        "partial_false",
        *(f"written_{what}_{name}" for what in ("action", "declined") for name in COMPLETIONS),
        *(f"language_{name}" for name in ("ar", "de", "es", "fr", "hi", "pt", "zh")),
    },
    "probe_grid": {
        "ratio_vs_sklearn_loop", "ratio_vs_sklearn_converged", "ratio_activation_like", "ratio_isotropic",
        "ratio_activation_like_same_loci", "ratio_isotropic_same_loci",
        "ratio_activation_like_one_thread", "ratio_isotropic_one_thread", "large_seconds_one_thread",
        "seconds_activation_like", "seconds_isotropic", "max_auroc_difference", "max_decision_difference",
        "sklearn_loop_auroc_difference", "sklearn_loop_decision_difference", "peak_mb_beyond_locus",
        "large_seconds_per_locus", "large_peak_mb_beyond_locus", "large_hours_scaled",
    },
    "evaluation": {"answers_per_s", "seconds_in_all", "memory_early_mb", "memory_late_mb", "memory_growth"},
    "bfloat16": {
        "speed_vs_float32", "stream_error_median", "stream_error_largest", "least_direction_cosine",
        "largest_auroc_change",
    },
    "products": {
        "float32", "least_float32", "bfloat16", "least_bfloat16", "bfloat16_vs_float32_one_row",
        "bfloat16_vs_float32_many_rows",
    },
    "scale": {
        "prompts_per_s_one", "prompts_per_s_processes", "prompts_per_s_ray", "prompts_per_s_ray_four", "overhead_ray",
        "speedup_2_workers", "speedup_4_workers", "bytes_per_prompt", "written_mb_per_s", "parts_per_s",
        "rendered_per_s", "gpu_prompts_per_s", "gpus_that_fill_the_file_system", "gpus_that_fill_the_driver",
        "hours_of_64_gpus", "hours_of_the_start", "terabytes", "driver_mb_few", "driver_mb_many", "driver_growth",
    },
    "whole_run": {
        "seconds_to_first_line", "minutes", "prompts_read", "prompts_answered", "independent_refusals_tested",
        "power_own_effect",
    },
    "store": {f"{what}_per_locus_{d}" for what in ("ms", "processor_ms") for d in (128, 896)},
    "startup": {f"seconds_{what}" for what in ("help", "score", "generate", "rerun", "imports", "lazy_imports")} | {
        "ratio_generate_vs_imports", "ratio_generate_vs_lazy_imports",
    },
    "validity": {
        "verdicts_right", "verdicts_allowed", "verdicts_forbidden", "verdicts_total",
        "forbidden_by_point_estimates", "ranks_right", "ranks_stated", "least_subspace_cosine",
        "false_positive_rate", "false_positive_rate_low",
        "false_positive_rate_high", "shuffles", "prompt_label_shuffles_tested", "least_planted_cosine",
        "trigger_verdicts_right", "trigger_verdicts_inconclusive", "trigger_shares_covered", "trigger_shares_planted",
        "elicited_shuffles", "elicited_positive", "thinking_shuffles", "thinking_positive",
    },
    "steering": {f"{name}_batch{size}" for size in (1, 8) for name in ("overhead", "ms_per_token")} | {
        f"{name}_batch{size}_{part}" for size in (1, 8) for part in PARTS
        for name in ("overhead", "wall", "control", "first_token", "extra_ms", "alarms", "nnsight", "nnsight_plain",
                     "transformer_lens", "transformer_lens_plain")
    },
    "llama_cpp": {
        "exact_difference", "exact_elsewhere", "prompts", "same_prompt_tokens", "missed_harm_plain",
        "missed_harm_steered",
        *(f"{what}_{way}" for what in ("actions", "first8") for way in ("plain", "steered")),
        *(f"over_refusal_{program}_{way}" for program in ("ours", "llama") for way in ("plain", "steered")),
        *(f"{what}_change{part}" for what in ("actions", "first8", "over_refusal_ours", "over_refusal_llama")
          for part in ("", "_low", "_high")),
    },
    "extraction": {
        "tokens_per_s", "ratio_vs_bare_forward", "ratio_vs_hidden_states", "ratio_vs_transformer_lens",
        "ratio_vs_nnsight", "fraction_of_matmul",
        "ratio_vs_bare_forward_shared_prompt", "memory_few_mb", "memory_many_mb", "memory_kb_per_prompt",
    },
}  # fmt: skip
DATA = ROOT.parent / "shared" / "data"
IF_INSTALLED = {
    "ratio_vs_nnterp", "ratio_vs_lmprobe", "lmprobe_auroc_difference", "lmprobe_decision_difference",
    "ratio_vs_probelab", "probelab_auroc_difference", "probelab_decision_difference",
} | {
    f"{name}_batch{size}_{part}" for name in ("steering_vectors", "repeng") for size in (1, 8) for part in PARTS
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", KEYS)
def test_quick_run(name: str, tmp_path: Path) -> None:
    if name == "judge" and not DATA.is_dir():
        pytest.skip(f"needs {DATA}, which is not committed")
    if name == "page" and CHROMIUM is None:
        pytest.skip("no Chromium here: apt install chromium")
    if name == "llama_cpp" and find_spec("llama_cpp") is None:
        pytest.skip(MISSING)
    out = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--json", str(out)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    record = json.loads(out.read_text())
    assert set(record["figures"]) - IF_INSTALLED == KEYS[name]
    if name != "validity":
        signed = [key for key in record["figures"] if key.endswith("_difference") or key.startswith("extra_ms")]
        signed += [
            key for key in record["figures"] if "_change" in key or "over_refusal" in key or "missed_harm" in key
        ]
        signed += ["largest_auroc_change"]  # none, where every prompt keeps its rank
        # of the few partial refusals in a quick run none may be found, and the rules judge English alone
        signed += [key for key in record["figures"] if "partial" in key or "language" in key]
        assert all(value > 0 or key in signed for key, value in record["figures"].items())
    else:
        assert record["figures"]["verdicts_total"] == 3
        assert record["figures"]["verdicts_right"] >= 2  # the nulls; 79 draws may not settle the organism's own
        assert record["figures"]["false_positive_rate_low"] <= 0.05
    if name == "probe_grid":
        assert record["figures"]["max_auroc_difference"] <= 1e-3
        assert record["figures"]["max_decision_difference"] <= 1e-3
    if name == "llama_cpp":
        assert record["figures"]["exact_difference"] < 0.02 < record["figures"]["exact_elsewhere"]
    if name == "scale":
        assert record["figures"]["driver_mb_few"] > 100
        more = record["figures"]["driver_mb_many"] - record["figures"]["driver_mb_few"]
        assert more < 6  # 11,000 prompts take 11.5
    if name == "steering":
        for size in (1, 8):
            low, point, high = (record["figures"][f"overhead_batch{size}_{part}"] for part in PARTS)
            assert low <= point <= high == record["figures"][f"overhead_batch{size}"]  # the upper bound is reported
    assert all(key in done.stdout for key in KEYS[name])
    assert record["environment"]["quick"] is True


def test_every_benchmark_is_tested() -> None:
    parts = {"__init__", "table", "shapes", "bench", "gpu", "memory"}
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - parts == set(KEYS)


@pytest.mark.skipif(find_spec("llama_cpp") is not None, reason="llama-cpp-python is installed")
def test_without_llama_cpp_its_benchmark_is_one_line() -> None:
    with pytest.raises(SystemExit, match=r"llama-cpp-python is not installed; pip install 'refusal-probes\[llama\]'"):
        llama_cpp.measure(quick=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_make_gpu_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.gpu"])
    monkeypatch.delitem(sys.modules, "benchmarks.gpu", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("benchmarks.gpu", run_name="__main__")
    assert ended.value.code == 2
    assert capsys.readouterr() == ("", "make gpu needs a GPU, and torch finds none\n")
