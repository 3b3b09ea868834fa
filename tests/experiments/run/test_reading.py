"""What needs no answers is done on every prompt, and the answered prompts keep the part that they have among all."""

from pathlib import Path

import numpy as np
import pytest

from experiments.dissociation.applicability import looks
from experiments.pipeline.graph import hash_inputs, stages_of
from experiments.pipeline.stages import run
from experiments.probing.read_probes import read_grid
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.setting import PromptBatch
from experiments.run.config import load_config, with_value
from extract.capture import Capturer
from extract.capture_spec import THOUGHT_END
from extract.errors import UserError
from extract.extraction import extract
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.progress import Reporter
from extract.store.activation_store import ActivationStore


@pytest.fixture(scope="module")
def loaded(two_knobs: ChatModel, tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    given = ["prompts.limit=60", "generate.limit=20", "generate.limit_dual_use=3", "extract.layers=[2, 4]"]
    given += ["extract.positions=[post_last]"]
    loaded = LoadedRun(load_config("configs/quickstart.yaml", given), tmp_path_factory.mktemp("run"))
    loaded.__dict__["model"] = two_knobs
    read = loaded.reading
    extract(two_knobs, read.prompts, read.rendered, loaded.file("activations.h5"), loaded.config.extract)
    return loaded


def test_answered_prompts_are_rows_of_all(loaded: LoadedRun) -> None:
    read, rows = loaded.reading, loaded.answered
    assert loaded.corpus.counts() == {"benign": 40, "harmful": 20, "uncertain": 20}
    assert read.corpus.counts()["harmful"] == 60
    assert [read.prompts[row] for row in rows] == loaded.prompts == list(loaded.corpus.prompts)
    assert (read.corpus.part[rows] == loaded.corpus.part).all()
    assert (read.corpus.groups[rows] == loaded.corpus.groups).all()
    assert [read.rendered[row] for row in rows] == loaded.rendered
    np.testing.assert_array_equal(loaded.store.read(4, "post_last"), read.store.read(4, "post_last")[rows])
    assert loaded.store.present.shape == (1, len(rows))


def test_read_probes_take_every_prompt(loaded: LoadedRun) -> None:
    chosen = {name: read.chosen for name, read in read_grid(loaded.reading).items()}
    test = loaded.reading.corpus.within("test")
    assert chosen["normative"].n_positive == (loaded.reading.corpus.harmful & test).sum() > 15
    assert chosen["normative"].auroc > 0.9


def test_fewer_prompts_are_read_each_in_the_part_that_it_has_among_all(loaded: LoadedRun) -> None:
    few = LoadedRun(with_value(loaded.config, "prompts.read", 30), loaded.directory)
    assert few.reading.corpus.counts()["harmful"] == 30
    assert few.prompts == loaded.prompts
    assert [few.reading.prompts[row] for row in few.answered] == few.prompts
    place = {prompt.id: row for row, prompt in enumerate(loaded.reading.prompts)}
    rows = [place[prompt.id] for prompt in few.reading.prompts]
    assert (few.reading.corpus.part == loaded.reading.corpus.part[rows]).all()
    assert (few.corpus.part == loaded.corpus.part).all()
    assert looks(few) == looks(loaded) == (loaded.corpus.share_of_groups(loaded.reading.corpus),)
    every = with_value(few.config, "generate.limit", None)
    assert LoadedRun(every, few.directory).reading.prompts == loaded.reading.prompts  # what is answered is read, too
    hashes = [hash_inputs(each.config, stages_of(each.config), "source") for each in (loaded, few)]
    assert {name for name in hashes[0] if hashes[0][name] == hashes[1][name]} == {"respond", "uncertainty"}


def test_a_store_of_fewer_prompts_of_this_model_alone_is_replaced(
    loaded: LoadedRun, tmp_path: Path, two_knobs: ChatModel
) -> None:
    def extracted(read: int, model: ChatModel = two_knobs, layers: tuple[int, ...] = (2, 4)) -> int:
        config = with_value(with_value(loaded.config, "prompts.read", read), "extract.layers", layers)
        run(config, tmp_path, until="extract", model=model)
        with ActivationStore(tmp_path / "activations.h5") as store:
            return len(store)

    fewer, more = extracted(20), extracted(30)
    assert 0 < fewer < more
    with pytest.raises(UserError, match=r"was made with another .*; choose another directory with --out"):
        extracted(20)
    with pytest.raises(UserError, match=r"was made with another .*; choose another directory with --out"):
        extracted(40, load_model("organisms/zoo/shared-knob"))
    with pytest.raises(UserError, match=r"was made with another .*; choose another directory with --out"):
        extracted(40, layers=(3,))
    with ActivationStore(tmp_path / "activations.h5") as store:
        assert len(store) == more


def test_too_few_answers_for_every_part_are_refused(loaded: LoadedRun) -> None:
    few = LoadedRun(load_config("configs/quickstart.yaml", ["generate.limit=1"]), loaded.directory)
    with pytest.raises(UserError, match=r"no .* prompt falls into the .* part; give more prompts \(or answer more"):
        _ = few.corpus


def test_a_thought_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is captured out of the answer that is judged later; prompts that are only read are asked for no more."""
    config = load_config("configs/quickstart.yaml", [
        "model.name=organisms/zoo/thought-after", "prompts.path=organisms/zoo/thought-after/prompts.jsonl",
        "prompts.limit=30", "generate.limit=20", "extract.layers=[3]", "extract.positions=[post_last]",
        "extract.thought_tokens=14", "generate.max_new_tokens=40",
    ])  # fmt: skip
    asked, plain = list[tuple[int, int]](), PromptBatch.responses

    def counting(self, setting, places, most, within):  # type: ignore[no-untyped-def]
        asked.append((most, len(places)))
        return plain(self, setting, places, most, within)

    monkeypatch.setattr(PromptBatch, "responses", counting)
    monkeypatch.setattr(Capturer, "_generated", None)
    for stage in ("extract", "respond"):
        run(config, tmp_path / "run", until=stage, reporter=Reporter(quiet=True))
    loaded = LoadedRun(config, tmp_path / "run")
    answered, read = len(loaded.prompts), len(loaded.reading.prompts)
    assert 0 < answered < read
    counts = {most: sum(n for each, n in asked if each == most) for most in (40, 14)}
    assert counts == {40: answered, 14: read - answered}
    at = loaded.store.positions.index(THOUGHT_END)
    assert loaded.store.present[at].tolist() == [bool(said.thought) for said in loaded.completions]
    assert loaded.reading.store.present[at].mean() > 0.9
