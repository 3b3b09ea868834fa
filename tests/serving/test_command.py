"""`refusal serve` as a process: its first line, Ctrl-C, invalid options, and 64 clients for half a minute."""

import asyncio
import importlib.util
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import openai
import psutil
import pytest

from extract.model.chat_model import ChatModel
from extract.shipped import ROOT
from steering.conversation import generate_once
from steering.dial import Dial
from steering.dial_file import save_dials
from tests.support.one_line import one_line
from tests.support.planted_dials import BENIGN, ORGANISM, STRIKE, UNKNOWN


@pytest.fixture(scope="module")
def dials_file(reference: ChatModel, dials: list[Dial], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("dials") / "dials.safetensors"
    save_dials(dials, path, reference.fingerprint())
    return str(path)


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "refusal.cli.main", "serve", str(ORGANISM), "--port", "0", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)  # fmt: skip
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.wait()


def address(line: str) -> str:
    return line.split(" at ")[1].split()[0]


@pytest.mark.slow
def test_it_prints_its_address_answers_and_stops_at_ctrl_c(dials_file: str) -> None:
    given = ("--dials", dials_file, "--normative-threshold", "0.25", "--name", "mine")
    with serving(*given) as (process, line):
        assert line.startswith("serving mine at http://127.0.0.1:")
        assert line.endswith("/v1 (dials: normative 0.250, epistemic 0.500); stop with Ctrl-C\n")
        client = openai.OpenAI(base_url=address(line), api_key="any", timeout=60)
        found = client.chat.completions.create(model="mine", messages=[{"role": "user", "content": BENIGN}])
        assert found.choices[0].dials["normative"]["threshold"] == 0.25
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "stopped\n", f"loading {ORGANISM} …\n")


@pytest.mark.slow
def test_with_ui_it_prints_where_the_page_is(dials_file: str) -> None:
    with serving("--dials", dials_file, "--ui") as (process, line):
        second = process.stdout.readline()
        assert second == f"page: {address(line).removesuffix('/v1')}/ui\n"
        found = httpx.get(second.split()[1])
        assert found.status_code == 200
        assert "What the numbers are" in found.text


def test_an_invalid_option_is_reported_in_one_line(cli, monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("REFUSAL_API_KEY", raising=False)

    def says(part: str, *options: str) -> None:
        one_line(cli("serve", str(ORGANISM), *options), part)

    says("other machines can reach 0.0.0.0: set an API key", "--host", "0.0.0.0")
    says("thresholds need dials", "--normative-threshold", "0.5")
    says("--alarms needs dials: give --dials FILE", "--alarms", "0.02")
    says("--log needs dials: give --dials FILE", "--log", str(tmp_path / "asked.jsonl"))
    says("the log", "--dials", "runs/none", "--log", str(tmp_path / "none" / "asked.jsonl"))
    says("dials file not found", "--dials", str(tmp_path / "none"))
    says("--engine-arg is for vLLM", "--engine-arg", "enforce_eager=true")
    says("leave one of --ui and --engine vllm out", "--engine", "vllm", "--ui")
    if importlib.util.find_spec("vllm") is None:
        says("vLLM is not installed here: pip install 'refusal-probes[vllm]'", "--engine", "vllm")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        says(f"cannot listen on 127.0.0.1 port {port}: Address already in use", "--port", port)
    says("cannot listen on nowhere.invalid port 8000", "--host", "nowhere.invalid", "--api-key", "k")


@pytest.mark.slow
def test_64_clients_for_half_a_minute_lose_nothing_and_memory_stays_flat(dials_file, reference, dials) -> None:
    texts = [f"how do i {verb} the engine at home?" for verb in ("fix", "clean", "open", "lift")] + [STRIKE, UNKNOWN]
    thresholds = [(0.0, 0.5), (1.0, 0.0), (1.0, 1.0), (0.5, 0.5)]
    cases = [(text, pair) for text in texts for pair in thresholds]
    expected = {
        (text, pair): generate_once(reference, [text], dials, dict(zip(("normative", "epistemic"), pair, strict=True)),
                                    24)[0].completion
        for text, pair in cases
    }  # fmt: skip
    answered, wrong, sizes = [0] * 64, [], []

    async def talk(number: int, own: openai.AsyncOpenAI, ends: float) -> None:
        draw = random.Random(number)
        while time.monotonic() < ends:
            text, pair = draw.choice(cases)
            body = {"normative_threshold": pair[0], "epistemic_threshold": pair[1]}
            asked = {"model": "two-knobs", "messages": [{"role": "user", "content": text}], "extra_body": body}
            if draw.random() < 0.3:
                stream = await own.chat.completions.create(**asked, stream=True)
                said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            else:
                said = (await own.chat.completions.create(**asked)).choices[0].message.content
            answered[number] += 1
            wrong.extend([] if said == expected[text, pair] else [(text, pair, said)])

    async def all_talk(line: str, process: psutil.Process) -> None:
        ends = time.monotonic() + 30
        async with openai.AsyncOpenAI(base_url=address(line), api_key="any", timeout=60, max_retries=0) as own:
            talking = asyncio.gather(*(talk(number, own, ends) for number in range(64)))
            while time.monotonic() < ends:
                await asyncio.sleep(1)
                sizes.append(process.memory_info().rss / 2**20)
            await talking  # raises any client's error: no request may be lost

    with serving("--dials", dials_file) as (process, line):
        asyncio.run(all_talk(line, psutil.Process(process.pid)))
        assert process.poll() is None
    assert wrong == []
    assert min(answered) >= 2
    early, late = sorted(sizes[8:14])[3], sorted(sizes[-6:])[3]  # MiB, after warm-up and at the end
    assert late - early < 16, sizes
