"""The response cache: which changes generate again, and what a kill, low memory or a bad file does."""

import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from experiments.responses.completions import Completer
from experiments.responses.response_cache import ResponseCache
from experiments.responses.setting import PromptBatch, Setting
from experiments.run.completion_file import Completion
from extract.chat.render import Rendered
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Scope, Site
from extract.prompts.prompt import Prompt
from extract.shipped import ROOT
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from scoring.judges.rules import RuleJudge
from steering.actuator import OnsetBias
from steering.dial import Dial
from steering.interventions import add, for_rows, place
from steering.onset import OnsetProcessor
from tests.support.make_small_run import some_prompts

pytestmark = pytest.mark.slow

ALL = list(range(5))
R = torch.nn.functional.normalize(torch.arange(32.0) - 9.0, dim=0)


def pushed(
    amount: float = 9.0, key: str = "push 9", layer: int = 1, site: Site = "resid_post", scope: Scope = "last_on"
) -> Edit:
    return place(site, layer, scope, lambda x: add(x, R, amount), key=key)


def completer(model: ChatModel, rows: list[Rendered], path: Path | None, **changes: Any) -> Completer:
    """Return a completer with its own opened cache, as another process would."""
    prompts = [Prompt(str(i), ({"role": "user", "content": "?"},), "benign", "answer") for i in range(len(rows))]
    kept = None if path is None else ResponseCache(path, model)
    return replace(Completer(model, prompts, rows, 6, 3, RuleJudge(), kept), **changes)


class Steps:
    """Counts the steps of a bar, and those of them that were remembered."""

    all = remembered = 0

    def __call__(self, steps: int, *, remembered: bool = False) -> None:
        self.all += steps
        self.remembered += steps if remembered else 0


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were generated each time, of any model."""
    rows: list[int] = []
    responses = PromptBatch.responses

    def counted(self: PromptBatch, setting: Setting, places: list[int], most: int, within: int) -> list[list[int]]:
        said = responses(self, setting, places, most, within)
        rows.append(len(said))
        return said

    monkeypatch.setattr(PromptBatch, "responses", counted)
    return rows


# -- what is generated again -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edits", [(), (pushed(),), (pushed(), pushed(-4, "push -4", 2, "resid_mid"))])
def test_a_cached_response_is_not_generated_again_and_is_the_same(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, generated: list[int], edits: tuple[Edit, ...]
) -> None:
    uncached = completer(tiny, tiny_rows, None).complete(ALL, edits=edits)
    assert sum(generated) == 5
    first = completer(tiny, tiny_rows, tmp_path / "g.sqlite").complete(ALL, edits=edits)
    assert sum(generated) == 10
    forward, steps = [], Steps()
    hook = tiny.model.register_forward_pre_hook(lambda *_: forward.append(1))
    second = completer(tiny, tiny_rows, tmp_path / "g.sqlite").complete(ALL, edits=edits, advance=steps)
    hook.remove()
    assert (sum(generated), forward, steps.all, steps.remembered) == (10, [], 5, 5)
    assert uncached == first == second
    assert len({completion.token_ids for completion in first}) == 5


def test_only_what_is_missing_is_generated_and_the_order_is_that_asked_for(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, generated: list[int]
) -> None:
    path, steps = tmp_path / "g.sqlite", Steps()
    completer(tiny, tiny_rows, path).complete([3, 1])
    said = completer(tiny, tiny_rows, path).complete([4, 3, 2, 1, 0], advance=steps)
    assert generated == [2, 3]
    assert (steps.all, steps.remembered) == (5, 2)  # the rate counts the other three
    assert said == completer(tiny, tiny_rows, None).complete([4, 3, 2, 1, 0])


def test_settings_share_a_batch_and_each_says_what_it_says_alone(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, generated: list[int]
) -> None:
    """One edit changes the prompt's earlier tokens, so it cannot share their keys and values."""
    settings = [Setting(), Setting([pushed()]), Setting([pushed(scope="all")]), Setting([pushed(-4, "push -4")])]
    alone = [completer(tiny, tiny_rows, None).complete(ALL, edits=setting.edits) for setting in settings]
    path, steps = tmp_path / "g.sqlite", Steps()
    completer(tiny, tiny_rows, path).complete([3, 1], edits=[pushed()])
    generated.clear()
    assert completer(tiny, tiny_rows, path).complete_each(ALL, settings, steps) == alone
    assert (sum(generated), steps.all, steps.remembered) == (3 * 5 + 3, 20, 2)
    assert len({str([c.token_ids for c in each]) for each in alone}) == 4
    outcomes = completer(tiny, tiny_rows, path).outcomes(np.array(ALL), dict(enumerate(one.edits for one in settings)))
    assert [outcomes[i].action.tolist() for i in range(4)] == [[c.action for c in each] for each in alone]
    assert completer(tiny, tiny_rows, path).outcomes(np.array(ALL), {}) == {}


def test_a_model_that_cannot_go_on_from_cached_prompts_says_the_same(
    tiny: ChatModel, tiny_rows: list[Rendered], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = completer(tiny, tiny_rows, None).complete(ALL, edits=[pushed()])
    monkeypatch.setattr("experiments.responses.setting.try_cache_prompts", lambda *_: None)
    assert completer(tiny, tiny_rows, None).complete(ALL, edits=[pushed()]) == shared


CHANGES: dict[str, Callable[[Completer], tuple[Completer, list[Edit]]]] = {
    "no edit": lambda s: (s, []),
    "one edit more": lambda s: (s, [pushed(), pushed(2, "push 2"), pushed()]),
    "order": lambda s: (s, [pushed(2, "push 2"), pushed()]),
    "key": lambda s: (s, [pushed(key="push 9.0"), pushed(2, "push 2")]),
    "layer": lambda s: (s, [pushed(layer=2), pushed(2, "push 2")]),
    "site": lambda s: (s, [pushed(site="resid_pre"), pushed(2, "push 2")]),
    "scope": lambda s: (s, [pushed(scope="all"), pushed(2, "push 2")]),
    "length": lambda s: (replace(s, max_new_tokens=7), [pushed(), pushed(2, "push 2")]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_response_under_other_conditions_is_generated_again(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, generated: list[int], change: str
) -> None:
    before = completer(tiny, tiny_rows, tmp_path / "g.sqlite")
    before.complete(ALL, edits=[pushed(), pushed(2, "push 2")])
    after, edits = CHANGES[change](before)
    said = after.complete(ALL, edits=edits)
    assert sum(generated) == 10
    assert said == replace(after, cache=None).complete(ALL, edits=edits)


def test_edits_of_a_surrounding_block_count_too(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, generated: list[int]
) -> None:
    here = completer(tiny, tiny_rows, tmp_path / "g.sqlite")
    plain = here.complete(ALL)
    with tiny.editing([pushed()]):
        assert here.complete(ALL) != plain
    assert sum(generated) == 10
    here.complete(ALL, edits=[pushed()])  # which is the same
    assert sum(generated) == 10


OF_MODEL: dict[str, Callable[[Any], object]] = {
    "a weight": lambda model: model.get_output_embeddings().weight.data[5, 3].add_(0.1),
    "configuration": lambda model: model.config.update({"rms_norm_eps": 0.5}),
    "dtype": lambda model: model.to(torch.bfloat16),
    "ends": lambda model: model.generation_config.update(eos_token_id=[2, 7]),
}


@pytest.mark.parametrize("change", OF_MODEL)
def test_another_model_generates_its_own_responses(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, generated: list[int], change: str
) -> None:
    completer(tiny, tiny_rows, tmp_path / "g.sqlite").complete(ALL)
    sampled = tiny.fingerprint()
    OF_MODEL[change](tiny.model)
    assert tiny.fingerprint() == sampled or change != "a weight"  # the sampled fingerprint does not read that weight
    completer(tiny, tiny_rows, tmp_path / "g.sqlite").complete(ALL)
    assert sum(generated) == 10


def test_another_backend_or_prompt_is_generated(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, generated: list[int]
) -> None:
    path = tmp_path / "g.sqlite"
    completer(tiny, tiny_rows, path).complete(ALL)
    for backend in ("nnsight", "transformer_lens"):
        other = ChatModel(tiny.model, tiny.tokenizer, "tiny", backend=backend)
        for _ in range(2):
            completer(other, tiny_rows, path).complete(ALL)
    assert sum(generated) == 15
    longer = [replace(row, token_ids=(*row.token_ids, 9)) for row in tiny_rows]
    completer(tiny, longer, path).complete(ALL)
    assert sum(generated) == 20


def test_responses_under_an_edit_without_a_key_or_a_dial_are_never_cached(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, generated: list[int]
) -> None:
    here = completer(tiny, tiny_rows, tmp_path / "g.sqlite")
    weak, strong, named = pushed(0.0, ""), pushed(9.0, ""), pushed(1.0, "push 1")
    assert here.complete(ALL, edits=[weak]) != here.complete(ALL, edits=[strong])
    here.complete(ALL, edits=[named, weak])
    here.complete(ALL, edits=[for_rows(named, slice(0, 1))])
    assert sum(generated) == 20
    direction = Direction("d", R.numpy(), Locus("resid_post", 1, "post_last"), 9.0, -7.0)
    dial = Dial("normative", Locus("resid_post", 0, "post_last"), LinearProbe(np.ones(32), 0.0, 0.1), Platt(1.0, 0.0),
                0.5, 0.0, direction)  # fmt: skip
    here.complete(ALL, dials=[dial])
    here.complete(ALL, dials=[dial], edits=[named])
    assert sum(generated) == 30
    with tiny.editing([], [OnsetProcessor(OnsetBias(((3,),)), 1, lambda: np.ones(1, dtype=int))]):
        here.complete(ALL)
    assert sum(generated) == 35
    with sqlite3.connect(tmp_path / "g.sqlite") as plain:
        assert plain.execute("SELECT count(*) FROM generations").fetchone() == (0,)


# -- kills and bad files -----------------------------------------------------------------------------------------------


def test_a_kill_loses_at_most_the_batch_in_flight(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, generated: list[int]
) -> None:
    """A process that answers two prompts at a time is killed (SIGKILL) while it answers the last one."""
    script = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        import torch
        from tests.experiments.responses import test_response_cache as here
        from tests.support.tiny_model import TEXTS, rendered, tiny_llama
        from experiments.responses.setting import PromptBatch
        torch.set_num_threads(1)
        model, responses, calls = tiny_llama(), PromptBatch.responses, []
        def dying(self, *asked):
            calls.append(1)
            return responses(self, *asked) if len(calls) < 3 else os.kill(os.getpid(), signal.SIGKILL)
        PromptBatch.responses = dying
        rows = rendered(model, TEXTS)
        here.completer(model, rows, Path(sys.argv[1]), batch_size=2).complete(here.ALL)
    """)
    path = tmp_path / "g.sqlite"
    killed = subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    said = completer(tiny, tiny_rows, path, batch_size=2).complete(ALL)
    assert generated == [1]
    assert said == completer(tiny, tiny_rows, None, batch_size=2).complete(ALL)


def test_a_batch_is_on_the_disk_before_it_is_judged(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, generated: list[int]
) -> None:
    class Broken(RuleJudge):
        def judge_all(self, said: Any) -> Any:
            raise UserError("no endpoint")

    with pytest.raises(UserError, match="no endpoint"):
        completer(tiny, tiny_rows, tmp_path / "g.sqlite", judge=Broken()).complete(ALL)
    assert generated == [3]
    completer(tiny, tiny_rows, tmp_path / "g.sqlite").complete(ALL)
    assert generated == [3, 2]


def test_an_altered_response_is_reported(tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path) -> None:
    path = tmp_path / "g.sqlite"
    completer(tiny, tiny_rows, path).complete(ALL)
    with sqlite3.connect(path) as plain:
        plain.execute("UPDATE generations SET tokens = replace(tokens, ',', ', 1') WHERE rowid = 3")
    message = r"g\.sqlite as the cache of the model's responses: a response in it does not match .*; delete it and run"
    with pytest.raises(UserError, match=message):
        completer(tiny, tiny_rows, path).complete(ALL)


# -- memory ------------------------------------------------------------------------------------------------------------


def edit_that_fits(most_rows: int) -> Callable[[Tensor], Tensor]:
    """Return an edit that runs out of memory on more rows, as a device does during a pass."""

    def edit(stream: Tensor) -> Tensor:
        if len(stream) > most_rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return add(stream, R, 9.0)

    return edit


def test_generation_backs_off_when_memory_runs_out(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, generated: list[int]
) -> None:
    lines, steps, fits = [], Steps(), edit_that_fits(2)

    def hook(_module: object, args: tuple[Tensor, ...]) -> None:
        fits(args[0])

    tiny.model.model.layers[2].register_forward_pre_hook(hook)
    here = completer(tiny, tiny_rows, tmp_path / "g.sqlite", batch_size=5, say=lines.append)
    said = here.complete(ALL, edits=[pushed()], advance=steps)
    assert generated == [2, 2, 1]
    assert (steps.all, steps.remembered) == (5, 0)
    assert lines == ["out of memory with 5 prompts at once; continuing with 2 prompts per batch"]
    assert tiny.edits == ()
    here.complete(ALL)  # what did not fit is not tried again
    assert generated == [2, 2, 1, 2, 2, 1]
    assert len(lines) == 1
    assert said == completer(tiny, tiny_rows, None, batch_size=1).complete(ALL, edits=[pushed()])


@pytest.mark.parametrize("backend", ["nnsight", "transformer_lens"])
def test_it_does_so_on_every_backend(tiny: ChatModel, tiny_rows: list[Rendered], backend: str) -> None:
    here = completer(ChatModel(tiny.model, tiny.tokenizer, "tiny", backend=backend), tiny_rows, None, batch_size=5)
    said = here.complete(ALL, edits=[place("resid_post", 1, "last_on", edit_that_fits(2))])
    assert said == replace(here, batch_size=2).complete(ALL, edits=[pushed()])


def test_one_prompt_that_does_not_fit_is_reported(tiny: ChatModel, tiny_rows: list[Rendered]) -> None:
    with pytest.raises(UserError, match=r"^out of memory while generating for a single prompt; .* or responses$"):
        completer(tiny, tiny_rows, None).complete(ALL, edits=[place("resid_post", 1, "all", edit_that_fits(0))])


# -- a run -------------------------------------------------------------------------------------------------------------


def test_a_run_with_one_more_control_generates_only_that_control(  # type: ignore[no-untyped-def]
    cli, tmp_path: Path, generated: list[int]
) -> None:
    (tmp_path / "prompts.jsonl").write_text("\n".join(some_prompts(3)))
    settings = {"prompts.path": tmp_path / "prompts.jsonl", "extract.positions": "[post_last]", "dissociate.alpha": 0.2,
                "dissociate.n_null_onset": 20, "dissociate.n_onset": 10, "dissociate.n_selection": 8}  # fmt: skip

    def dissociated(n_null_generation: int) -> tuple[dict[str, Any], list[Completion]]:
        given = settings | {"dissociate.n_null_generation": n_null_generation}
        flags = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        code, _, err = cli("dissociate", "configs/quickstart.yaml", *flags, "--out", str(tmp_path / "run"))
        assert code == 0, err
        return json.loads((tmp_path / "run/stages/dissociate.json").read_text()), err

    one, _ = dissociated(1)
    before = sum(generated)
    two, err = dissociated(2)
    assert before > 5 * 200  # plain ones and six interventions
    assert sum(generated) - before == 2 * 2 * 10  # one null direction a kind more, on ten decliners of either kind
    assert "interventions on test prompts" in err
    assert "probing" not in err  # what a control does not change is not done again
    assert two["matrix"] == one["matrix"]
    for effect, same in zip(two["effects"], one["effects"], strict=True):
        assert effect["null"]["stopped_by_generation"][:1] == same["null"]["stopped_by_generation"]
