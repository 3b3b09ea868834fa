"""Watching while serving: metrics, a planted shift that is seen, a log, and dials that alarm and never write."""

import json
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx2 as httpx
import numpy as np
import openai
import pytest
import torch
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from torch import Tensor

from extract.capture_spec import CaptureSpec
from extract.chat.render import Rendered, render
from extract.errors import UserError
from extract.in_memory import capture_in_memory
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass
from extract.prompts.prompt import Prompt, load_prompts
from serving.watch import BINS, Watch, check_log
from steering.controller import steering, token_log_odds
from steering.conversation import generate_once
from steering.dial import Dial, Reference, alarming
from steering.gates import Readings
from tests.support.planted_dials import BENIGN, ORGANISM, STRIKE, UNKNOWN
from tests.support.running_server import Running, running

pytestmark = pytest.mark.slow

N_TOKENS = 12
N_READ = N_TOKENS - 1  # of a cut answer the last token is not run
WORD = "sister"


def rendered(model: ChatModel, prompts: Sequence[Prompt]) -> list[Rendered]:
    return [render(model.tokenizer, prompt) for prompt in prompts]


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    """The organism's benign and harmful prompts without `WORD`, in an order of their own."""
    every = [
        p for p in load_prompts(ORGANISM / "prompts.jsonl") if p.label in ("benign", "harmful") and WORD not in p.text
    ]
    return [every[i] for i in np.random.default_rng(0).permutation(len(every))]


@pytest.fixture(scope="module")
def referred(model: ChatModel, dials: list[Dial], prompts: list[Prompt]) -> list[Dial]:
    """The planted dials with a reference of 100 prompts, and of the answers to the benign ones."""
    some = prompts[:100]
    rows = rendered(model, some)
    locus = dials[0].read
    spec = CaptureSpec(layers=(locus.layer,), positions=(locus.position,))
    streams = capture_in_memory(model, some, rows, spec).read(locus.layer, locus.position)
    benign = [row for row, prompt in zip(rows, some, strict=True) if prompt.label == "benign"]
    said = model.generate(model.batch(benign), N_TOKENS)
    made = []
    for dial in dials:
        whole = [[*row.token_ids, *answer[:N_READ]] for row, answer in zip(benign, said, strict=True)]
        odds = token_log_odds(model, [dial], whole)[dial.kind]
        highest = [values[len(row.token_ids) :].max() for row, values in zip(benign, odds, strict=True)]
        reference = Reference(dial.probability(streams), streams, np.sort(highest), N_READ)
        made.append(replace(dial, reference=reference))
    return made


def reads(model: ChatModel, dials: Sequence[Dial], rows: Sequence[Rendered], edits: Sequence[Edit] = ()) -> Readings:
    with model.editing(edits), steering(model, dials, batch := model.batch(rows), rows) as readings:
        model.generate(batch, 1)
    return readings


def watched(
    model: ChatModel, dials: Sequence[Dial], watch: Watch, prompts: Sequence[Prompt], edits: Sequence[Edit] = ()
) -> None:
    """Pass what the dials read of each prompt to the watch, in order."""
    found = reads(model, dials, rendered(model, prompts), edits)
    for i, prompt in enumerate(prompts):
        watch.prompt(prompt.messages, found.of_prompt(i))


def towards(dial: Dial, rows: Sequence[bool], amount: float) -> Edit:
    """A planted shift: some rows' last prompt token moves along what the dial reads, before it is read."""
    along = torch.tensor(dial.probe.weight, dtype=torch.float32)

    def move(stream: Tensor, pass_: Pass) -> Tensor:
        if pass_.is_prefill:
            stream = stream.clone()
            stream[torch.tensor(rows), -1] += amount * along
        return stream

    return Edit("resid_post", dial.read.layer, move)


def test_a_word_that_comes_to_decide_is_seen_and_a_stream_without_it_is_not(
    model: ChatModel, referred: list[Dial], prompts: list[Prompt]
) -> None:
    said: list[str] = []
    watch = Watch(referred, CollectorRegistry(), said.append)
    watched(model, referred, watch, prompts[100:300])
    assert not said
    assert watch.state()["normative"].conversations == 200
    benign = [prompt for prompt in prompts[300:] if prompt.label == "benign"][:100]
    with_word = [
        replace(p, messages=({"role": "user", "content": f"{p.text} my {WORD} asked."},)) if i % 2 else p
        for i, p in enumerate(benign)
    ]
    watched(model, referred, watch, with_word, [towards(referred[0], [WORD in p.text for p in with_word], 40.0)])
    state = watch.state()
    assert all(line.startswith("shift: what the normative dial reads has changed") for line in said)
    assert 200 < state["normative"].alarms[0] <= 300
    assert state["epistemic"].alarms == []


def test_a_direction_that_turns_with_the_length_of_the_context_is_seen(
    model: ChatModel, referred: list[Dial], prompts: list[Prompt]
) -> None:
    normative, _ = referred
    along, across = (torch.tensor(dial.probe.weight, dtype=torch.float32) for dial in referred)

    def turn(stream: Tensor, pass_: Pass) -> Tensor:
        if pass_.is_prefill:
            part = stream[:, -1] @ along + normative.probe.bias
            stream = stream.clone()
            stream[:, -1] += part[:, None] * (across - along)
        return stream

    said: list[str] = []
    watch = Watch([normative], CollectorRegistry(), said.append)
    longer = [
        replace(p, messages=({"role": "user", "content": f"{BENIGN} {BENIGN} {p.text}"},)) for p in prompts[100:250]
    ]
    found = reads(model, [normative], rendered(model, longer), [Edit("resid_post", normative.read.layer, turn)])
    for i, prompt in enumerate(longer):
        watch.prompt(prompt.messages, found.of_prompt(i))
    assert watch.state()["normative"].alarms[0] <= 150


def test_later_turns_and_repeats_count_as_requests_and_not_as_conversations(
    model: ChatModel, referred: list[Dial], prompts: list[Prompt]
) -> None:
    watch = Watch(referred, CollectorRegistry())
    found = reads(model, referred, rendered(model, prompts[:1])).of_prompt(0)
    later = [*prompts[0].messages, {"role": "assistant", "content": "sure."}, *prompts[1].messages]
    for messages in (prompts[0].messages, later, *[prompts[0].messages] * 40):
        watch.prompt(messages, found)
    state = watch.state()["normative"]
    assert (state.conversations, sum(state.read), sum(state.calibration), state.compared) == (1, 1, 100, 42)
    assert state.alarmed == 0  # of one that is asked again and again
    (gates,) = state.by_hour.values()
    assert sum(gates.values()) == 42
    assert len(state.read) == len(state.calibration) == BINS


def test_a_prompt_unlike_all_certified_ones_is_counted_apart(
    model: ChatModel, referred: list[Dial], prompts: list[Prompt]
) -> None:
    row = rendered(model, prompts[150:151])
    near = reads(model, referred, row).of_prompt(0)["normative"]
    far = reads(model, referred, row, [towards(referred[0], [True], 400.0)]).of_prompt(0)["normative"]
    assert near.unlike > 0.01 > far.unlike
    watch = Watch(referred, CollectorRegistry())
    for read in (near, far):
        watch.prompt(prompts[150].messages, {"normative": read})
    assert (watch.state()["normative"].unlike, watch.state()["normative"].compared) == (1, 2)


@pytest.fixture(scope="module")
def alarm_server(model: ChatModel, referred: list[Dial]) -> Iterator[Running]:
    with running(model, [dial.alarm(0.05) for dial in referred]) as found:
        yield found


def test_metrics_count_every_request_of_64_clients(alarm_server: Running) -> None:
    texts = [(BENIGN, STRIKE, UNKNOWN)[i % 3] for i in range(64)]

    def ask(text: str) -> str:
        asked = {"model": "two-knobs", "messages": [{"role": "user", "content": text}]}
        with httpx.Client(timeout=60) as client:
            client.get(f"{alarm_server.url}/metrics").raise_for_status()
            return client.post(f"{alarm_server.url}/v1/chat/completions", json=asked).raise_for_status().json()["id"]

    before = _metrics(alarm_server.url).get(("refusal_gates_total", "normative"), 0)
    with ThreadPoolExecutor(64) as clients:
        assert len(set(clients.map(ask, texts))) == 64
    found = _metrics(alarm_server.url)
    assert found["refusal_gates_total", "normative"] - before == 64
    assert found["refusal_read_probability_count", "epistemic"] >= 64
    assert found["refusal_calibration_probability_count", "epistemic"] == 100
    assert found["refusal_shift_alarm_level", ""] == 20_000  # of two dials, which together keep 10,000
    state = httpx.get(f"{alarm_server.url}/watch").json()
    assert sum(state["normative"]["read"]) == state["normative"]["conversations"] == 3  # repeats count once


def _metrics(url: str) -> dict[tuple[str, str], float]:
    """Metrics by name and dial, summed over other labels."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                key = sample.name, sample.labels.get("dial", "")
                found[key] = found.get(key, 0) + sample.value
    return found


def test_metrics_need_the_key_of_the_server(model: ChatModel, dials: list[Dial]) -> None:
    with running(model, dials, api_key="secret") as served:
        for path in ("metrics", "watch"):
            assert httpx.get(f"{served.url}/{path}").status_code == 401
            assert httpx.get(f"{served.url}/{path}", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_dials_that_alarm_read_every_token_of_an_answer_and_write_nothing(
    model: ChatModel, referred: list[Dial]
) -> None:
    alarms = [dial.alarm(0.05) for dial in referred]
    for text in (BENIGN, STRIKE, UNKNOWN):
        (turn,) = generate_once(model, [text], alarms, {"normative": 0.0}, 24)
        (plain,) = generate_once(model, [text], [], {}, 24)
        assert turn.completion == plain.completion
        (row,) = rendered(model, [Prompt("x", ({"role": "user", "content": text},), "benign", "answer")])
        (answer,) = model.generate(model.batch([row]), 24)
        odds = token_log_odds(model, alarms, [[*row.token_ids, *answer]])
        for dial in alarms:
            read, values = turn.readings[dial.kind].answer, odds[dial.kind][0][len(row.token_ids) :][:N_READ]
            assert read.highest == pytest.approx(values.max(), abs=1e-3)
            above = np.flatnonzero(values > dial.answer_limit)
            assert read.at == (int(above[0]) if len(above) else None)


def test_alarms_of_benign_answers_keep_their_budget_over_draws_of_the_reference(
    model: ChatModel, referred: list[Dial], prompts: list[Prompt]
) -> None:
    benign = [prompt.text for prompt in prompts if prompt.label == "benign"][:500]
    alarms = [dial.alarm(0.05) for dial in referred]
    turns = generate_once(model, benign, alarms, {}, 2 * N_TOKENS)
    for dial in alarms:
        highest = np.array([turn.readings[dial.kind].answer.highest for turn in turns])
        shares = {0.05: [], 0.2: []}
        for seed in range(200):
            order = np.random.default_rng(seed).permutation(len(highest))
            reference = replace(dial.reference, answers=np.sort(highest[order[:60]]))
            for budget, found in shares.items():
                found.append(np.mean(highest[order[60:]] > reference.answer_limit(budget)))
        for budget, found in shares.items():
            assert budget * 0.7 < np.mean(found) <= budget + 0.005  # on average over references; one may be off


def test_a_stream_says_when_a_dial_alarms_and_ends_with_it(alarm_server: Running, referred: list[Dial]) -> None:
    client = openai.OpenAI(base_url=f"{alarm_server.url}/v1", api_key="any")
    question = [{"role": "user", "content": UNKNOWN}]
    chunks = list(client.chat.completions.create(model="two-knobs", messages=question, stream=True))
    read = [chunk.choices[0].dials for chunk in chunks if getattr(chunk.choices[0], "dials", None)]
    at = [dials["normative"]["answer"]["at"] for dials in read]
    assert at[0] is None
    assert read[0]["normative"]["answer"]["highest"] is None
    assert at[-1] is not None
    assert len(read) >= 3  # the first, that of the alarm, the last
    (whole,) = client.chat.completions.create(model="two-knobs", messages=question).choices
    assert whole.dials == read[-1]
    state = httpx.get(f"{alarm_server.url}/watch").json()
    assert state["normative"]["answers_alarmed"] >= 2


def test_the_budget_is_that_of_all_dials_together(referred: list[Dial]) -> None:
    together = alarming(referred, 0.2)
    assert [dial.answer_limit for dial in together] == [dial.reference.answer_limit(0.1) for dial in referred]


def test_few_certified_prompts_are_not_compared_with(
    model: ChatModel, referred: list[Dial], prompts: list[Prompt]
) -> None:
    reference = referred[0].reference
    fewer = replace(referred[0], reference=replace(reference, streams=reference.streams[:98]))
    assert reads(model, [fewer], rendered(model, prompts[:1])).of_prompt(0)["normative"].unlike is None
    constant = reference.streams.copy()
    constant[:, 0] = 3000.0  # a dimension without spread
    far = replace(reference, streams=constant).unlike(constant[:1] + 100.0)
    assert far[0] < 0.01


def test_a_read_that_is_no_number_and_a_log_that_is_gone_fail_no_request(
    model: ChatModel, referred: list[Dial], prompts: list[Prompt], tmp_path: Path
) -> None:
    watch = Watch(referred, CollectorRegistry(), log=tmp_path / "none" / "asked.jsonl")
    found = reads(model, referred, rendered(model, prompts[:1])).of_prompt(0)
    watch.prompt(prompts[0].messages, {kind: replace(read, probability=float("nan")) for kind, read in found.items()})
    watch.prompt(prompts[1].messages, found)
    assert watch.state()["normative"].conversations == 1


def test_a_budget_that_so_few_answers_cannot_keep_is_refused(referred: list[Dial], dials: list[Dial]) -> None:
    with pytest.raises(UserError, match=r"needs 999 answers to calibration prompts; these dials have \d+"):
        referred[0].alarm(0.001)
    with pytest.raises(UserError, match="no answers to compare with"):
        dials[0].alarm(0.05)


def test_a_log_keeps_conversations_for_their_owner_alone(
    model: ChatModel, referred: list[Dial], prompts: list[Prompt], tmp_path: Path
) -> None:
    (tmp_path / "asked.jsonl").touch(0o644)
    path = check_log(tmp_path / "asked.jsonl")
    watch = Watch(referred, CollectorRegistry(), log=path)
    found = reads(model, referred, rendered(model, prompts[:2]))
    for i in range(2):
        watch.prompt(prompts[i].messages, found.of_prompt(i))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["messages"] for line in lines] == [list(prompt.messages) for prompt in prompts[:2]]
    assert lines[0]["dials"]["normative"]["probability"] == found.of_prompt(0)["normative"].probability
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(UserError, match="cannot be written"):
        check_log(tmp_path / "none" / "asked.jsonl")
