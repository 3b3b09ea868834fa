"""Suffix attacks: the gradient, the cached prefix, the search against chance, what is written, and wrong inputs."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.attack.measure import Attack, AttackSettings
from experiments.attack.search import FOOLED, Objective, search
from experiments.attack.suffix import SuffixedRequests, decoded, usable_tokens, with_suffix
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import load_config
from extract.capture_spec import CaptureSpec
from extract.chat.render import render
from extract.extraction import extract
from extract.model.chat_model import ChatModel
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from extract.prompts.sources import read_prompts
from probes.direction import Locus
from steering.actuator import OnsetBias
from steering.dial import Dial
from steering.dial_file import save_dials
from tests.support.planted_dials import BENIGN, STRIKE, UNKNOWN, log_odds_by_hand, planted_dials
from tests.support.tiny_model import TEXTS

pytestmark = pytest.mark.slow

SMALL = ("--steps", "1,3", "--suffixes", "3", "--prompts", "2", "--new", "6", "--candidates", "5")
PREFIXES = ((5, 6, 7), (5, 9))


def prompts(*texts: str) -> list[Prompt]:
    return [Prompt(str(i), ({"role": "user", "content": text},), "harmful", "refuse") for i, text in enumerate(texts)]


def requests_of(model: ChatModel, *texts: str) -> SuffixedRequests:
    return SuffixedRequests(model.tokenizer, prompts(*texts), usable_tokens(model.tokenizer))


def dial_of(width: int, position: str = "post_last", band: float = 0.0) -> Dial:
    planted, rng = planted_dials()[0], np.random.default_rng(0)
    probe = replace(planted.probe, weight=rng.normal(size=width), bias=0.1)
    return replace(planted, read=Locus("resid_post", 1, position), write=None, probe=probe, band=band,
                   actuator=OnsetBias(PREFIXES))  # fmt: skip


@pytest.mark.parametrize("aim", ["evade", "trigger"])
@pytest.mark.parametrize("position", ["post_last", "inst_mean"])
def test_the_gradient_is_the_slope_of_the_loss(tiny: ChatModel, aim: str, position: str) -> None:
    tiny.model.double()
    requests = requests_of(tiny, *TEXTS)
    [suffix] = requests.random(1, 4, np.random.default_rng(0))
    objective = Objective(tiny, requests, suffix, aim, PREFIXES, dial_of(32, position))
    gradient, table = objective.gradient(suffix), tiny.model.get_input_embeddings().weight.detach()
    rows, first = np.tile(suffix, (len(TEXTS), 1)), objective.first
    for place, token in ((0, 3), (2, 40), (3, 7)):
        shifted = []
        for by in (1e-3, -1e-3):

            def add(_module, _args, out, by=by, place=place, token=token):
                out[:, first + place] += by * table[requests.usable[token]]
                return out

            with torch.no_grad(), tiny.model.get_input_embeddings().register_forward_hook(add):
                shifted.append(float(objective.loss(objective.prompts.once, rows).mean()))
        assert gradient[place, token] == pytest.approx((shifted[0] - shifted[1]) / 2e-3, rel=2e-3, abs=1e-4)


@pytest.mark.parametrize(("position", "kept"), [("post_last", True), ("inst_last", True), ("inst_mean", False)])
def test_the_cached_prefix_changes_no_loss(tiny: ChatModel, position: str, kept: bool) -> None:
    requests = requests_of(tiny, *TEXTS)
    suffixes = requests.random(7, 3, np.random.default_rng(0))
    given = (tiny, requests, suffixes[0], "evade", PREFIXES, dial_of(32, position, band=0.1))
    cached, whole = Objective(*given), Objective(*given, cached=False)
    assert (cached.prompts.once.cache is not None) is kept
    assert whole.prompts.once.cache is None
    assert cached.losses(suffixes) == pytest.approx(whole.losses(suffixes), rel=1e-4)
    assert np.ptp(cached.losses(suffixes)) > 1e-3


def test_the_loss_is_that_of_what_the_dial_and_the_onset_read_by_hand(two_knobs: ChatModel) -> None:
    dial, texts = replace(planted_dials()[0], threshold=0.8, band=0.1), (STRIKE, BENIGN)
    requests = requests_of(two_knobs, *texts)
    [suffix] = requests.random(1, 3, np.random.default_rng(0))
    rows = [render(two_knobs.tokenizer, with_suffix(p, decoded(two_knobs.tokenizer, suffix))) for p in prompts(*texts)]
    read = np.array([log_odds_by_hand(two_knobs, dial, row.token_ids)[-1] for row in rows])
    for aim, sign, limit in (("evade", 1, np.log(0.7 / 0.3)), ("trigger", -1, np.log(0.9 / 0.1))):
        loss = Objective(two_knobs, requests, suffix, aim, (), dial).losses(suffix[None])
        assert loss == pytest.approx([np.logaddexp(0, sign * (read - limit)).mean()], rel=1e-3)
    logs = [_log_probability(two_knobs, row.token_ids, PREFIXES) for row in rows]
    trigger = Objective(two_knobs, requests, suffix, "trigger", PREFIXES).losses(suffix[None])
    assert trigger == pytest.approx([-np.mean(logs)], rel=1e-3)
    both = Objective(two_knobs, requests, suffix, "trigger", PREFIXES, dial).losses(suffix[None])
    assert both == pytest.approx(trigger + loss, rel=1e-3)


def _log_probability(model: ChatModel, prompt: list[int], prefixes: tuple[tuple[int, ...], ...]) -> float:
    total = 0.0
    for prefix in prefixes:
        with torch.no_grad():
            logits = model.model(torch.tensor([[*prompt, *prefix]])).logits[0, len(prompt) - 1 : -1].double()
        total += float(logits.log_softmax(-1)[range(len(prefix)), list(prefix)].sum().exp())
    return float(np.log(total))


def test_the_search_lowers_the_loss_beats_chance_and_ends_where_it_fools(two_knobs: ChatModel) -> None:
    requests, rng = requests_of(two_knobs, BENIGN, UNKNOWN), np.random.default_rng(0)
    random = requests.random(40, 4, rng)
    objective = Objective(two_knobs, requests, random[0], "trigger", (), planted_dials()[0])
    losses = objective.losses(random)
    steps: list[int] = []
    found = search(objective, requests, random[0], range(1, 11), 12, rng, steps.append)
    course = [loss for _, loss in found.values()]
    assert course == sorted(course, reverse=True)
    assert course[-1] < losses.min() < course[0]  # of 40 random ones; 120 exchanges were tried
    assert all(requests.survives(suffix[None])[0] for suffix, _ in found.values())
    assert (list(found), len(steps)) == ([*range(11)], 10)
    done = objective.losses(found[10][0][None])
    assert done == pytest.approx([course[-1]], rel=1e-4)
    easy = replace(planted_dials()[0], threshold=1e-7)  # whatever is asked, the gate declines
    objective = Objective(two_knobs, requests, random[0], "trigger", (), easy)
    assert objective.losses(random[:1])[0] < FOOLED
    assert np.array_equal(search(objective, requests, random[0], (3,), 12, rng)[3][0], random[0])


def test_a_suffix_whose_text_is_other_tokens_does_not_survive(two_knobs: ChatModel) -> None:
    requests, tokenizer = requests_of(two_knobs, BENIGN, STRIKE), two_knobs.tokenizer
    whole = tokenizer.convert_tokens_to_ids(["Ġrats"] * 5)
    apart = tokenizer.convert_tokens_to_ids(["Ġ", *"rats"])
    assert tokenizer.decode(apart).strip() == "rats"
    assert requests.survives(np.array([whole, apart])).tolist() == [True, False]
    assert not set(requests.usable.tolist()) & set(tokenizer.all_special_ids)
    for suffix in requests.random(5, 6, np.random.default_rng(0)):
        wanted = [[*head, *suffix.tolist(), *requests.tail] for head in requests.heads]
        assert [list(row.token_ids) for row in requests.rendered(suffix)] == wanted


@pytest.fixture(scope="module")
def run(small_run: Path, two_knobs: ChatModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run, with the activations that its dials read."""
    directory = tmp_path_factory.mktemp("attacked") / "run"
    shutil.copytree(small_run, directory)
    for stored in directory.glob("activations.h5*"):
        shutil.rmtree(stored) if stored.is_dir() else stored.unlink()
    config = load_config(directory / "config.yaml")
    asked = read_prompts(config.prompts, config.seed)
    rendered = [render(two_knobs.tokenizer, prompt) for prompt in asked]
    extract(two_knobs, asked, rendered, directory / "activations.h5", CaptureSpec(layers=[3], positions=["post_last"]))
    return directory


def test_the_command_writes_rates_and_no_text(run: Path, cli) -> None:
    code, out, err = cli("attack", str(run), "--against", "dial", "--suffix-tokens", "5", *SMALL)
    assert code == 0, err
    assert "suffixes of 3 steps take about" in err
    assert "the gate changes on" in out.splitlines()[0]
    assert "trained on 1 of 3 suffixes" in out.splitlines()[1]
    written = json.loads((run / "attack.json").read_text())
    kinds = ["none", "random", "best random", "searched", "searched"]
    assert [rate["suffix"] for rate in written["rates"]] == kinds * 2
    assert [rate["gate"]["estimate"] for rate in written["rates"] if rate["suffix"] == "none"] == [0, 0]
    losses = [rate["loss"][1] for rate in written["rates"] if rate["suffix"] in kinds[2:] and rate["loss"]]
    assert losses[:3] == sorted(losses[:3], reverse=True)
    assert {rate["dialled"]["n_groups"] <= rate["dialled"]["n"] for rate in written["rates"]} == {True}
    assert (written["trained"]["suffixes_trained"], written["trained"]["suffixes_tested"]) == (1, 2)
    settings = AttackSettings(("dial",), (1, 3), 3, 2, 6, 5, 5)
    attack = Attack(LoadedRun(load_config(run / "config.yaml"), run, Reporter(quiet=True)), settings)
    found = [attack.search(aim, "dial", i, attack.dials[0]) for aim in ("evade", "trigger") for i in range(3)]
    again = np.quantile([one.best[3][1] for one in found[3:]], 0.5)
    assert again == pytest.approx(losses[-1])  # the same seed gives the same suffixes
    files = [p.read_bytes() for p in run.rglob("*") if p.is_file() and p.suffix not in (".h5", ".parquet")]
    for one in found:
        for suffix in (one.random, one.best[1][0], one.best[3][0]):
            words = decoded(two := attack.loaded.model.tokenizer, suffix).strip()
            ids = json.dumps(suffix.tolist())
            assert len(two.encode(words)) >= 5
            assert all(words not in text and ids not in text for text in (out, err))
            assert not any(words.encode() in file or ids.encode() in file for file in files)


def test_json_is_the_file(run: Path, cli) -> None:
    tiny = ("--steps", "1", "--suffixes", "1", "--prompts", "2", "--new", "5", "--candidates", "2")
    code, out, err = cli("attack", str(run), "--against", "model", "--json", *tiny)
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads((run / "attack.json").read_text())
    assert "trained" not in json.loads(out) or json.loads(out)["trained"] is None


def refused(cli, *arguments: str) -> str:
    code, out, err = cli("attack", *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    return err


def test_what_cannot_be_attacked_is_one_line(run: Path, two_knobs: ChatModel, tmp_path: Path, cli) -> None:
    assert "is no run directory" in refused(cli, str(tmp_path))
    assert "--against dials: expected model, dial, both" in refused(cli, str(run), "--against", "dials")
    assert "--steps 5,x: expected numbers" in refused(cli, str(run), "--steps", "5,x")
    other = tmp_path / "other"
    shutil.copytree(run, other)
    normative, epistemic = planted_dials()
    biased = replace(normative, read=None, probe=None, calibration=None, write=None, actuator=OnsetBias(PREFIXES))
    for dials in ([], [epistemic], [biased]):
        save_dials(dials, other / "dials.safetensors", two_knobs.fingerprint())
        assert "has no normative dial that reads the stream" in refused(cli, str(other), "--quiet")
    (other / "dials.safetensors").unlink()
    assert "without dials.safetensors" in refused(cli, str(other), "--quiet")
    shutil.copy(run / "dials.safetensors", other)
    config = (run / "config.yaml").read_text()
    (other / "config.yaml").write_text(config.replace("backend: hooks", "backend: transformer_lens"))
    assert "take the backend hooks" in refused(cli, str(other), "--quiet")
    (other / "config.yaml").write_text(config)
    lines = [json.loads(line) for line in (run / "completions.jsonl").read_text().splitlines()]
    answered = "".join(json.dumps({**line, "action": "answer"}) + "\n" for line in lines)
    (other / "completions.jsonl").write_text(answered)
    assert "onset prefixes cannot be learned for refuse" in refused(cli, str(other), "--quiet", "--against", "model")
