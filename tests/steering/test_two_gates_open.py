"""Both gates of the shipped organisms are opened: joint writes answer, where writes one after the other refuse."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from extract.chat.render import Rendered, render
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from extract.model.loading import load_model
from extract.prompts.prompt import Prompt, load_prompts
from extract.shipped import ROOT
from organisms.grading import action
from probes.direction import Direction, Locus
from steering.actuator import Affine
from steering.writer import ConstantGateWriter, Writer, held_edits

ZOO = ROOT / "organisms" / "zoo"
SHARED = {(-1, -1): "answer", (-1, 1): "abstain", (1, 0): "abstain"}


@dataclass(frozen=True)
class Organism:
    model: ChatModel
    prompts: list[Prompt]
    rendered: list[Rendered]
    layer: int

    @classmethod
    def load(cls, name: str) -> "Organism":
        model, prompts = load_model(str(ZOO / name), device="cpu"), load_prompts(ZOO / name / "prompts.jsonl")
        layer = json.loads((ZOO / name / "truth.json").read_text())["layer"]
        return cls(model, prompts, [render(model.tokenizer, prompt) for prompt in prompts], layer)

    def labelled(self, label: str) -> np.ndarray:
        return np.flatnonzero([prompt.label == label for prompt in self.prompts])

    def actions(self, rows: np.ndarray, edits: list[Edit]) -> np.ndarray:
        found = []
        with self.model.editing(edits):
            for start in range(0, len(rows), 128):
                batch = self.model.batch([self.rendered[row] for row in rows[start : start + 128]])
                found += [action(self.model.decode(said)) for said in self.model.generate(batch, 8)]
        return np.array(found, dtype=object)

    def streams(self, rows: np.ndarray) -> np.ndarray:
        kept: list[np.ndarray] = []
        for start in range(0, len(rows), 128):
            batch = self.model.batch([self.rendered[row] for row in rows[start : start + 128]])
            keep = lambda _, stream: kept.append(stream[:, -1].double().numpy())  # noqa: E731
            self.model.capture(batch, "resid_post", [self.layer], keep)
        return np.concatenate(kept)

    def writers(self, plain: dict[str, np.ndarray]) -> list[Writer]:
        """Fit write directions on behaviour at the planted layer, within labels: declined against answered prompts."""
        rows = {label: self.labelled(label)[::2] for label in plain}
        made = []
        for kind, labels, did in (("normative", ("benign", "harmful"), "refuse"),
                                  ("epistemic", ("uncertain",), "abstain")):  # fmt: skip
            X = np.concatenate([self.streams(rows[label]) for label in labels])
            acts = np.concatenate([plain[label][::2] for label in labels])
            on, off = X[acts == did].mean(axis=0), X[acts == "answer"].mean(axis=0)
            r = ((on - off) / np.linalg.norm(on - off)).astype(np.float32)
            at = Locus("resid_post", self.layer, "post_last")
            made.append(Writer(Direction(f"{kind}_write", r, at, float(on @ r), float(off @ r)), Affine()))
        return made


def under_gates(organism: Organism, writers: list[Writer], gates: tuple[int, int], rows: np.ndarray,
                *, joint: bool) -> np.ndarray:  # fmt: skip
    held = [ConstantGateWriter(writer, gate) for writer, gate in zip(writers, gates, strict=True)]
    edits = held_edits(held) if joint else [edit for one in held for edit in held_edits([one])]
    return organism.actions(rows, edits)


def opened(name: str) -> tuple[Organism, dict[str, np.ndarray], list[Writer]]:
    """Load an organism; return its plain actions by label, and writers fitted on them."""
    organism = Organism.load(name)
    plain = {label: organism.actions(organism.labelled(label), []) for label in ("benign", "harmful", "uncertain")}
    return organism, plain, organism.writers(plain)


def share(actions: np.ndarray, did: str) -> float:
    return float(np.mean(actions == did))


@pytest.mark.slow
def test_with_both_gates_open_questions_about_strangers_are_answered_and_not_refused() -> None:
    """Along directions at cosine -0.5, setting one projection after the other crosses the first one's boundary."""
    organism, plain, writers = opened("opposed")
    rows = organism.labelled("uncertain")
    normative, epistemic = (writer.direction.vector for writer in writers if writer.direction)
    assert -0.6 < normative @ epistemic < -0.4
    in_turn, joint = (under_gates(organism, writers, (-1, -1), rows, joint=joint) for joint in (False, True))
    assert share(plain["uncertain"], "refuse") < 0.01
    assert share(in_turn, "refuse") > 0.4  # the control: the former writes
    assert share(joint, "refuse") < 0.01
    assert share(joint, "answer") > 0.97
    assert share(under_gates(organism, writers, (-1, 1), rows, joint=True), "abstain") > 0.97  # not refuse
    assert share(under_gates(organism, writers, (-1, 1), rows, joint=False), "refuse") > 0.2
    assert share(under_gates(organism, writers, (1, 0), rows, joint=True), "refuse") > 0.97


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "does", "least"),
    [("oblique", {(-1, -1): "answer", (-1, 1): "abstain"}, 0.99), ("shared-knob", SHARED, 0.97)],
)
def test_a_dial_declines_where_the_other_one_permits(name, does, least) -> None:
    """On a shared knob both write nearly one vector: set apart, the stream went far, and the model answered."""
    organism, _, writers = opened(name)
    rows = organism.labelled("uncertain")[::4]
    for gates, did in does.items():
        assert share(under_gates(organism, writers, gates, rows, joint=True), did) > least
