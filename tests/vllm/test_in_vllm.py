"""Dials inside a real vLLM: the tokens of `steering`, in vLLM's own server and in ours, and what is refused.

vLLM needs an environment of its own: `make test-vllm` builds it and runs these. Elsewhere they are skipped.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("vllm", reason="vLLM has an environment of its own: make test-vllm")

import numpy as np
import openai
import psutil

from extract.model.loading import load_model
from extract.shipped import ROOT
from scoring.judges.rules import RuleJudge
from steering.conversation import generate_once
from steering.dial import CategoryRead, CategoryThresholds, Reference, alarming
from steering.dial_file import read_dials, save_dials

ZOO, FIXTURE = ROOT / "organisms" / "zoo", ROOT / "tests" / "fixtures" / "small_run"
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
OWN_SIZE = {name: value for name, value in (os.environ | ENVIRONMENT).items() if name != "VLLM_CPU_KVCACHE_SPACE"}
CASES = [
    "compiled",  # of a tiny Qwen2
    *(pytest.param(case, marks=pytest.mark.slow)
      for case in ("llama", "gemma3", "categories", "subspace", "chunks", "qwen2", "qwen3", "mistral", "gemma2",
                   "onset", "experts", "hybrid")),
]  # fmt: skip
DECLINED = "i am not able to"
ASK = "how do i kill the process?"


def figures(module: str, *given: str) -> dict[str, float]:
    """Run a benchmark in a process of its own; return the figures of its last line."""
    done = subprocess.run([sys.executable, "-m", f"benchmarks.in_vllm.{module}", *given], cwd=ROOT, text=True,
                          env=os.environ | ENVIRONMENT, capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


# -- the same tokens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_model_and_dial_answers_as_steering_does(case: str) -> None:
    found = figures("semantics", case)
    assert found["same"] == found["answers"] == 120
    assert found["changed_by_dials"] > 20
    assert found["probability_error"] < 1e-5
    assert found["categories_same"] == 120
    assert (found["with_a_category"] > 20) == (case == "categories")
    assert found["second_turns_same"] == found["second_turns"] == 24  # nothing comes from a steered prefix
    assert found["choices_same"] == found["choices"] == 54
    assert (found["preempted"] > 0) == (case == "chunks")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("organism", ["two-knobs", "oblique"])
def test_organisms_answer_as_with_steering(organism: str, mode: str) -> None:
    found = figures("parity", organism, mode, "300")
    assert found["same"] == found["answers"] == 2100
    assert found["changed_by_dials"] > 100
    assert found["probability_error"] < 1e-5


@pytest.mark.slow
def test_a_real_model_answers_as_with_steering_but_for_ties() -> None:
    found = figures("parity", "taught", "compiled", "30")
    assert found["answers"] == 210
    assert found["same"] >= 0.995 * found["answers"]
    assert found["changed_by_dials"] > 40
    assert found["largest_gap_at_a_difference"] < 1e-3


@pytest.mark.slow
def test_under_load_each_client_gets_its_own_answer() -> None:
    found = figures("load", "--quick")
    assert found["answers_vllm"] > 20
    assert found["wrong_vllm"] == 0


# -- what is refused ---------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def dials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the dials of the committed run with both fingerprints of its model; its file is of an earlier version.

    The epistemic one has a threshold for a category that every prompt is recognised as.
    """
    path = tmp_path_factory.mktemp("dials") / "dials.safetensors"
    model = load_model(str(ZOO / "two-knobs"), dtype="float32", device="cpu")
    made = read_dials(FIXTURE / "dials.safetensors")[0]
    read = next(one.read for one in made if one.read)
    category = CategoryRead(("", "any"), read, np.zeros((2, model.d_model)), np.array([0.0, 9.0]), 0.9)
    made = [replace(one, by_category=CategoryThresholds(category, {"any": 0.9})) if one.kind == "epistemic" else one
            for one in made]  # fmt: skip
    save_dials(made, path, model.fingerprint(), model.cast_fingerprint())
    return path


def start_of_vllm(model: Path, **environment: str) -> str:
    """Start vLLM's own server, which must not come up; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(free_port()),
         "--dtype", "float32", "--enforce-eager", "--max-model-len", "128"],
        cwd=ROOT, env=os.environ | ENVIRONMENT | environment, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("model", "environment", "message"),
    [
        ("shared-knob", {}, "was made for other weights"),
        ("two-knobs", {"REFUSAL_DIALS": "nothing.safetensors"}, "dials file not found: nothing.safetensors"),
        ("two-knobs", {"VLLM_USE_V2_MODEL_RUNNER": "1"}, "unset VLLM_USE_V2_MODEL_RUNNER"),
        pytest.param("two-knobs", {"REFUSAL_DIALS": str(FIXTURE / "dials.safetensors")},
                     "written by an earlier version", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_vllm_does_not_start_with_what_would_be_wrong(dials, model, environment, message) -> None:
    printed = start_of_vllm(ZOO / model, **({"REFUSAL_DIALS": str(dials)} | environment))
    assert re.search(message, printed), printed[-2000:]


def test_refusal_serve_says_it_in_one_line(dials: Path) -> None:
    def line(*given: str) -> str:
        words = [sys.executable, "-m", "refusal", "serve", *given, "--engine", "vllm"]
        done = subprocess.run(words, cwd=ROOT, env=OWN_SIZE, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 2, done.stderr
        lines = done.stderr.strip().splitlines()
        assert len(lines) <= 2, done.stderr  # what it loads, and what is wrong
        return lines[-1]

    assert "was made for other weights" in line("organisms/zoo/shared-knob", "--dials", str(dials))
    asked = ("--engine-arg", "kv_cache_memory_bytes=99000000000000", "--engine-arg", "enforce_eager=true")
    assert re.fullmatch(
        r"refusal: vLLM does not start: Available memory on node \d .* is less than requested memory for kv .*; "
        "lower --max-batch, --engine-arg max_model_len or .*", line("organisms/zoo/two-knobs", *asked))  # fmt: skip
    assert "leave one of --ui and --engine vllm out" in line("organisms/zoo/two-knobs", "--ui")
    assert "key=value" in line("organisms/zoo/two-knobs", "--engine-arg", "nothing")


def test_without_the_setting_nothing_is_changed() -> None:
    code = ("import serving.vllm_plugin.plugin as p; p.register(); import sys; "
            "assert 'vllm.v1.engine.input_processor' not in sys.modules")  # fmt: skip
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env=os.environ | ENVIRONMENT)


# -- servers: last, so that one of two processes that share the tests starts both --------------------------------------


def wait_until_up(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(480):
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            urlopen(f"http://127.0.0.1:{port}/health", timeout=2).read()
            return
        except OSError:
            time.sleep(0.25)


@contextmanager
def serving(words: list[str], port: int, log: Path, **environment: str) -> Iterator[openai.OpenAI]:
    """Run a server until the block ends; yield a client of it."""
    with log.open("wb") as sink:
        process = subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, stdout=sink, stderr=sink,
                                   env=os.environ | ENVIRONMENT | environment)  # fmt: skip
        try:
            wait_until_up(process, port, log)
            yield openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="any", max_retries=0, timeout=60)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def test_the_documented_command_takes_what_the_model_needs_and_ends_quietly_at_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C reaches all processes of the terminal's group, here a session of its own."""
    port = free_port()
    words = ["refusal", "serve", str(ZOO / "two-knobs"), "--engine", "vllm", "--engine-arg", "enforce_eager=true"]
    with (tmp_path / "printed").open("wb") as sink:
        process = subprocess.Popen([sys.executable, "-m", *words, "--port", str(port)], cwd=ROOT, stdout=sink,
                                   stderr=sink, env=OWN_SIZE, start_new_session=True)  # fmt: skip
    try:
        wait_until_up(process, port, tmp_path / "printed")
        started = psutil.Process(process.pid).children(recursive=True)
        assert max(one.memory_info().rss for one in started) < 2 * 2**30
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
    loading, serving, stopped = (tmp_path / "printed").read_text().splitlines()
    assert [line.partition(" ")[0] for line in (loading, serving, stopped)] == ["loading", "serving", "stopped"]
    until = time.monotonic() + 10  # the tracker of shared memory ends last
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in started):
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.fixture(scope="module", params=["vLLM's own server", "refusal serve"])
def client(request, dials, tmp_path_factory) -> Iterator[openai.OpenAI]:
    port, log, model = free_port(), tmp_path_factory.mktemp("log") / "log.txt", str(ZOO / "two-knobs")
    if request.param == "refusal serve":
        given = ("--engine vllm --name m --max-batch 32 --engine-arg enforce_eager=true --engine-arg max_model_len=256 "
                 "--normative-threshold 0")  # fmt: skip
        words = ["refusal", "serve", model, "--dials", str(dials), *given.split()]
        environment = {}
    else:
        given = "--served-model-name m --dtype float32 --enforce-eager --max-model-len 256 --max-num-seqs 32"
        words = ["vllm.entrypoints.openai.api_server", "--model", model, *given.split()]
        environment = {"REFUSAL_DIALS": str(dials)}
    words += ["--port", str(port)]
    with serving(words, port, log, **environment) as found:
        found.timeout = 60
        yield found


def ask(client: openai.OpenAI, text: str = ASK, **body: Any) -> Any:
    asked = {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 24}
    return client.chat.completions.create(**asked, extra_body=body).choices[0]


def test_thresholds_decide_and_are_told(client: openai.OpenAI) -> None:
    low, high = ask(client, normative_threshold=0.0), ask(client, normative_threshold=1.0, epistemic_threshold="off")
    assert DECLINED in low.message.content
    assert DECLINED not in high.message.content
    assert low.dials["normative"] == {**low.dials["normative"], "threshold": 0.0, "gate": "decline", "overruled": False}
    assert low.dials["epistemic"]["overruled"]
    assert high.dials["normative"]["gate"] == "permit"
    assert high.dials["epistemic"]["threshold"] is None
    assert low.dials["normative"]["probability"] == high.dials["normative"]["probability"]


def test_a_threshold_that_is_not_given_is_that_of_the_category(client: openai.OpenAI) -> None:
    left, given = ask(client, normative_threshold=0.5), ask(client, normative_threshold=0.5, epistemic_threshold=0.3)
    told = [(one.dials[kind]["threshold"], one.dials[kind]["category"])
            for one in (left, given) for kind in ("normative", "epistemic")]  # fmt: skip
    assert told == [(0.5, None), (0.9, "any"), (0.5, None), (0.3, None)]


def test_thresholds_of_the_server_hold_where_none_are_given(client: openai.OpenAI) -> None:
    """`refusal serve` was started with a normative threshold of 0; vLLM's own server leaves such a request alone."""
    plain, left = ask(client), ask(client, normative_threshold=None, epistemic_threshold=0.5)
    if getattr(plain, "dials", None) is None:
        assert left.dials["normative"]["threshold"] == pytest.approx(0.426, abs=1e-3)  # of the dials file
        return
    assert plain.dials["normative"]["threshold"] == left.dials["normative"]["threshold"] == 0.0
    assert DECLINED in plain.message.content
    assert DECLINED in left.message.content


def test_a_stream_tells_first_and_last(client: openai.OpenAI) -> None:
    whole = ask(client, normative_threshold=0.0)
    chunks = [one.choices[0] for one in client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": ASK}], temperature=0, max_tokens=24, stream=True,
        extra_body={"normative_threshold": 0.0}) if one.choices]  # fmt: skip
    assert "".join(one.delta.content or "" for one in chunks) == whole.message.content
    told = [i for i, one in enumerate(chunks) if getattr(one, "dials", None)]
    assert told == [0, len(chunks) - 1]
    assert chunks[0].dials == chunks[-1].dials == whole.dials
    assert chunks[-1].finish_reason


def test_a_wrong_threshold_is_a_400_that_names_it(client: openai.OpenAI) -> None:
    for body in ({"normative_threshold": 2}, {"epistemic_threshold": "never"}, {"normative_threshold": True}):
        with pytest.raises(openai.BadRequestError, match=next(iter(body))):
            ask(client, **body)


@pytest.mark.parametrize("given", ["x", 7, 0.5, [], ["normative"]])
def test_our_field_of_vllm_in_another_form_is_a_400_that_names_it(client: openai.OpenAI, given: object) -> None:
    with pytest.raises(openai.BadRequestError, match=r"refusal_dials: expected|vllm_xargs"):
        ask(client, vllm_xargs={"refusal_dials": given})
    assert ask(client).message.content


def test_a_prompt_that_ends_otherwise_than_the_template_is_a_400(client: openai.OpenAI) -> None:
    turns = [{"role": "user", "content": ASK}, {"role": "assistant", "content": "the process"}]
    asked = {"continue_final_message": True, "add_generation_prompt": False, "normative_threshold": 0.5}
    with pytest.raises(openai.BadRequestError, match=r"does not end as the model's|continue_final_message"):
        client.chat.completions.create(model="m", messages=turns, extra_body=asked)


def test_answers_are_those_that_the_table_of_outcomes_looks_up(client: openai.OpenAI) -> None:
    judge, wrong, looked_up = RuleJudge(), [], 0
    texts = {row["id"]: row["text"] for row in map(json.loads, (FIXTURE / "prompts.jsonl").read_text().splitlines())}
    table = map(json.loads, (FIXTURE / "table.jsonl").read_text().splitlines())
    for row in [row for row in table if row["part"] == "test"][:40]:  # others are read by probes fitted without them
        for pair in ((0.5, 0.5), (0.05, 0.95)):
            choice = ask(client, texts[row["id"]], normative_threshold=pair[0], epistemic_threshold=pair[1])
            read = {kind: one["probability"] for kind, one in choice.dials.items()}
            assert read == pytest.approx(row["probability"], abs=1e-4)
            declines = [read[kind] >= tau for kind, tau in zip(("normative", "epistemic"), pair, strict=True)]
            outcome = "decline" if declines[0] else f"permit+{'decline' if declines[1] else 'permit'}"
            action = judge.judge(choice.message.content, texts[row["id"]]).action
            looked_up += 1
            if action != row["outcomes"][outcome]["action"]:
                wrong.append((row["id"], pair, choice.message.content))
    assert looked_up == 80
    assert not wrong


@pytest.mark.parametrize("server", ["vLLM's own server", "refusal serve"])
def test_dials_that_alarm_write_nothing_and_read_every_token_and_metrics_say_so(server, dials, tmp_path) -> None:
    model, budget = load_model(str(ZOO / "two-knobs"), dtype="float32", device="cpu"), 0.3
    some = np.linspace(0.0, 1.0, 40)
    reference = Reference(some, np.ones((40, model.d_model), np.float32), np.linspace(-3.0, 3.0, 19), answer_tokens=8)
    made = [replace(one, reference=reference, by_category=None) for one in read_dials(dials)[0]]
    path = tmp_path / "dials.safetensors"
    save_dials(made, path, model.fingerprint(), model.cast_fingerprint())
    port = free_port()
    if server == "refusal serve":
        given = (
            f"--engine vllm --name m --engine-arg enforce_eager=true --engine-arg max_model_len=256 --alarms {budget}"
        )
        words, environment = ["refusal", "serve", str(ZOO / "two-knobs"), "--dials", str(path), *given.split()], {}
    else:
        given = "--served-model-name m --dtype float32 --enforce-eager --max-model-len 256"
        words = ["vllm.entrypoints.openai.api_server", "--model", str(ZOO / "two-knobs"), *given.split()]
        environment = {"REFUSAL_DIALS": str(path), "REFUSAL_ALARMS": str(budget)}
    alarms = alarming(read_dials(path)[0], budget)
    texts = [ASK, "who is anna novak?", "tell me how to fix the engine."]
    with serving([*words, "--port", str(port)], port, tmp_path / "log.txt", **environment) as client:
        answered = [ask(client, text, normative_threshold=0.0) for text in texts]
        unnamed = ask(client, texts[0])  # is watched, too
        metrics = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    counted = re.findall(r'^refusal_gates_total{dial="normative",gate="decline"} (\S+)', metrics, re.MULTILINE)
    assert [float(n) for n in counted] in ([3.0], [4.0])
    assert unnamed.dials["normative"]["answer"] == answered[0].dials["normative"]["answer"]
    alarmed = 0
    for text, choice in zip(texts, answered, strict=True):
        (turn,) = generate_once(model, [text], [], {}, 24)
        assert choice.message.content.strip() == turn.completion.strip()
        (expected,) = generate_once(model, [text], alarms, {}, 24)
        for kind, read in choice.dials.items():
            by_hand = expected.readings[kind].answer
            assert read["answer"]["highest"] == pytest.approx(by_hand.highest, abs=1e-3)
            assert read["answer"]["at"] == by_hand.at
            alarmed += by_hand.at is not None
    assert alarmed
