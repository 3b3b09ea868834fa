"""A system line is chosen on training prompts, and what it elicits is shown on others, or said not to be there."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.elicited.condition import CONTROL, LINE, asked_rows, under
from experiments.elicited.elicit import elicit
from experiments.elicited.results import Elicitation
from experiments.responses.completions import Completer
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import write_samples
from experiments.run.completion_file import Completion
from experiments.run.corpus import TESTED
from experiments.run.outcomes import NOTHING, PLAIN, read_outcomes
from extract.errors import UserError
from tests.support.eliciting import BE_KIND, MANY, eliciting

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path: Path, two_knobs, monkeypatch: pytest.MonkeyPatch):
    return eliciting(tmp_path, two_knobs, monkeypatch)


def elicited(loaded: LoadedRun) -> Elicitation:
    elicit(loaded)
    return Elicitation.read(loaded.file("stages/elicit.json"))


def test_the_line_that_elicits_most_is_chosen_and_its_prompts_are_a_run_of_their_own(run) -> None:
    loaded = run()
    found = elicited(loaded)
    assert (found.reason, found.line, found.control) == ("", MANY, BE_KIND)
    few, many = (one.difference for one in found.tried)
    assert 0.1 < few.estimate < many.low < 0.6 < many.estimate + 0.1
    share = {(s.condition, s.label, s.action): s for s in found.shares}
    assert share[LINE, "uncertain", "abstain"].low > 0.5 > 0.2 > share[LINE, "twin", "abstain"].high
    assert share[CONTROL, "uncertain", "abstain"].estimate == share[PLAIN, "uncertain", "abstain"].estimate == 0
    assert 0.3 < share[LINE, "harmful", "refuse"].estimate < 0.9
    assert share[LINE, "uncertain", "abstain"].n == (loaded.corpus.uncertain & loaded.corpus.within(*TESTED)).sum()
    assert found.above_control.low > 0.5
    condition, places = under(loaded, MANY), asked_rows(loaded.corpus)
    assert condition.prompts[0].messages[0] == {"role": "system", "content": MANY}
    assert [p.id for p in condition.prompts] == [loaded.prompts[row].id for row in places]
    assert condition.corpus.part.tolist() == loaded.corpus.part[places].tolist()
    assert condition.write_activations(4).shape == (len(places), 128)
    assert condition.reading is condition
    assert condition.kept is not loaded.kept
    assert condition.mirrored.corpus.part.tolist() == loaded.mirrored.corpus.part[places].tolist()
    samples = write_samples(condition.behaviour, "epistemic")
    assert not condition.corpus.harmful[samples.rows].any()  # though harmful prompts are abstained from
    assert condition.corpus.harmful[condition.behaviour.did("abstain")].any()
    assert samples.declined.sum() == len(condition.behaviour.decliners("epistemic", "train"))
    table = read_outcomes(loaded.file("outcomes.parquet/elicit.parquet"), [p.id for p in loaded.prompts])
    assert table[LINE, NOTHING].rows.tolist() == places.tolist()
    assert len(table[CONTROL, NOTHING].rows) < len(places)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"lines": [BE_KIND]}, "the model abstains from 0 tested uncertain prompts, 20 are needed"),
        ({"words": True}, "declines no more uncertain prompts than under a control line (0 points"),
        ({"when": "never"}, "not asked"),
    ],
)
def test_what_is_not_elicited_is_said_in_one_sentence(run, given: dict, reason: str) -> None:
    found = elicited(run(**given))
    assert reason in found.reason
    assert (found.elicited, found.direction.available) == (False, False)


def test_a_model_that_abstains_from_twins_as_often_elicits_nothing(run, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = run()
    complete = Completer.complete

    def alike(self: Completer, rows, **more: object) -> list[Completion]:
        done = complete(self, rows, **more)
        asked = [len(self.prompts[row].messages) > 1 and self.prompts[row].label != "harmful" for row in rows]
        return [replace(one, action="abstain") if is_so else one for one, is_so in zip(done, asked, strict=True)]

    monkeypatch.setattr(Completer, "complete", alike)
    assert "no more often than from those of their twins whose answer it knows (0 points [" in elicited(loaded).reason


def test_a_model_that_abstains_by_itself_is_not_asked_and_a_template_without_system_says_so(run, monkeypatch) -> None:
    loaded = run()
    actions = np.where(loaded.corpus.uncertain, "abstain", loaded.behaviour.actions)
    loaded.behaviour = replace(loaded.behaviour, actions=actions)
    assert elicited(loaded).reason.startswith("the model abstains by itself, from ")

    def no_system(*_: object) -> None:
        raise UserError("no system role")

    loaded = run()
    monkeypatch.setattr("experiments.responses.loaded_run.render", no_system)
    assert "model.system=merge" in elicited(loaded).reason


def test_only_twins_that_the_model_knows_are_compared_with(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It abstains under a line from every twin that it does not know, which is right, and from none that it knows."""
    loaded, complete = run(), Completer.complete
    known = loaded.behaviour.correct & (np.arange(len(loaded.prompts)) % 3 > 0)
    loaded.__dict__["behaviour"] = replace(loaded.behaviour, correct=known)
    knows = {prompt.id for prompt, does in zip(loaded.prompts, known, strict=True) if does}

    def doubting(self: Completer, rows, **more: object) -> list[Completion]:
        done = complete(self, rows, **more)
        prompts = [self.prompts[row] for row in rows]
        doubts = [p.label == "benign" and len(p.messages) > 1 and p.id not in knows for p in prompts]
        return [replace(one, action="abstain") if doubt else one for one, doubt in zip(done, doubts, strict=True)]

    monkeypatch.setattr(Completer, "complete", doubting)
    found = elicited(loaded)
    assert (found.reason, found.line) == ("", MANY)
    twins = loaded.corpus.twins & loaded.corpus.within(*TESTED)
    abstained = next(s for s in found.shares if (s.condition, s.label, s.action) == (LINE, "twin", "abstain"))
    assert (abstained.estimate, abstained.n) == (0, (twins & known).sum())
    assert (twins & ~known).any()
    loaded.__dict__["behaviour"] = replace(loaded.behaviour, correct=np.zeros(len(known), dtype=bool))
    found = elicited(loaded)
    asked = f"of {twins.sum()} tested twins, with which uncertain prompts are compared"
    assert found.reason == f"{asked}, the model knows none"
    assert not found.line
