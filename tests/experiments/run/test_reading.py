"""What needs no answers is done on every prompt, and the answered prompts keep the part that they have among all."""

import numpy as np
import pytest

from experiments.probing.read_probes import read_grid
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import load_config
from extract.errors import UserError
from extract.extraction import extract
from extract.model.chat_model import ChatModel


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


def test_too_few_answers_for_every_part_are_refused(loaded: LoadedRun) -> None:
    few = LoadedRun(load_config("configs/quickstart.yaml", ["generate.limit=1"]), loaded.directory)
    with pytest.raises(UserError, match=r"no .* prompt falls into the .* part; give more prompts \(or answer more"):
        _ = few.corpus
