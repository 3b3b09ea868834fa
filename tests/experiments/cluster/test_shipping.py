"""Tasks survive the way to a worker: what they do there is what they do here."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.responses.completions import Completer
from experiments.responses.setting import Asked, Setting
from experiments.run.behaviour import Kind
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from scoring.judges.rules import RuleJudge
from steering.ablation import ablation, addition
from steering.ablation_variant import Variant
from steering.actuator import Addition, OnsetBias
from steering.dial import Dial
from steering.writer import ConstantGateWriter, Writer

pickle = pytest.importorskip("ray.cloudpickle")


class Shipped:
    """A pool whose parts go through Ray's pickling; the last part is done first, as it may come."""

    def __init__(self, completer: Completer) -> None:
        self.reporter, self.parts = Reporter(quiet=True), 0
        generate = SimpleNamespace(batch_size=completer.batch_size)
        self._loaded = SimpleNamespace(
            model=completer.model, kept=None, config=SimpleNamespace(generate=generate), reporter=self.reporter
        )

    def map(self, task: Any, parts: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        self.parts += len(parts)
        work = pickle.loads(pickle.dumps(task)).prepare(self._loaded)
        for place in reversed(range(len(parts))):
            yield place, pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(parts[place])))))


def direction(model: ChatModel, seed: int, later: bool = True) -> Direction:
    vector = np.random.default_rng(seed).standard_normal(model.d_model).astype(np.float32)
    later_means = {layer: (9.0, -9.0) for layer in range(2, model.n_layers)} if later else {}
    return Direction("d", vector / np.linalg.norm(vector), Locus("resid_post", 1, "post_last"), 9.0, -9.0, later_means)


def dial(along: Direction, kind: Kind, threshold: float) -> Dial:
    probe = LinearProbe(along.vector.astype(np.float64), 0.0, 1.0)
    return Dial(kind, along.locus, probe, Platt(1.0, 0.0), threshold, 0.0, along)


def settings(model: ChatModel) -> list[Setting]:
    one, other = direction(model, 0), direction(model, 1)
    writers = [Writer(one, Addition(2.0), 1), Writer(None, OnsetBias(((5, 9), (7,)), 40.0), 2)]
    return [
        Setting(),
        *(Setting(ablation(one, Variant(form=form, layers=layers))) for form in ("affine", "zero", "additive")
          for layers in ("selected", "later") if (form, layers) != ("additive", "later")),
        Setting([*addition(one), *ablation(other)]),
        Setting(held=[ConstantGateWriter(writers[0], 1), ConstantGateWriter(writers[1], -1)]),
        Setting(held=[ConstantGateWriter(writers[1], 1)]),
        Setting(dials=[dial(one, "normative", 0.0), dial(other, "epistemic", 1.0)]),
    ]  # fmt: skip


@pytest.fixture
def here(tiny: ChatModel, tiny_rows: list[Rendered]) -> Completer:
    prompts = [Prompt(str(i), ({"role": "user", "content": "?"},), "benign", "answer") for i in range(len(tiny_rows))]
    return Completer(tiny, prompts, tiny_rows, 6, 2, RuleJudge())


def test_shipped_parts_give_the_completions_of_one_process(tiny: ChatModel, here: Completer) -> None:
    pool = Shipped(here)
    given, rows = settings(tiny), [3, 0, 4, 1, 2]
    expected = here.complete_each(rows, given)
    assert replace(here, pool=pool).complete_each(rows, given) == expected
    assert pool.parts == 3
    assert len({tuple(one.token_ids for one in column) for column in expected}) > 4  # the settings do something


def test_shipped_parts_draw_the_samples_of_one_process(here: Completer) -> None:
    pool, rows = Shipped(here), [3, 0, 4, 1, 2]
    expected = here.sample(rows, 3, seed=7)
    assert replace(here, pool=pool).sample(rows, 3, seed=7) == expected
    assert pool.parts == 3
    assert len({one.token_ids for each in expected for one in each}) > 5  # they are samples


def test_open_edits_of_this_process_are_not_left_behind(tiny: ChatModel, here: Completer) -> None:
    pool = Shipped(here)
    with tiny.editing(addition(direction(tiny, 0))):
        expected = here.complete([0, 1])
        assert replace(here, pool=pool).complete([0, 1]) == expected
    assert pool.parts == 0


def test_prompts_are_divided_as_one_process_divides_them(tiny_rows: list[Rendered]) -> None:
    asked = Asked(tiny_rows, [[0, 1, 2, 3, 4], [1, 4]])
    parts = asked.parts(2)
    assert [list(part.rendered) for part in parts] == [tiny_rows[:2], tiny_rows[2:4], tiny_rows[4:]]
    assert [part.places for part in parts] == [[[0, 1], [1]], [[0, 1], []], [[0], [0]]]
