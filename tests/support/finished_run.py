"""Copies of the finished runs in tests/fixtures, with the activations that the report draws, extracted again.

The activations are left out of the fixtures for their size; the organism gives them again in two seconds.
"""

import json
import shutil
from pathlib import Path

from experiments.pipeline.graph import in_order, read_inputs, stages_of
from experiments.run.config import load_config
from experiments.run.manifest import Manifest
from extract.capture_spec import CaptureSpec
from extract.chat.render import render
from extract.extraction import extract
from extract.model.chat_model import ChatModel
from extract.prompts.sources import read_prompts

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


def copy_run(name: str, to: Path, model: ChatModel) -> Path:
    """Copy a run, and extract what its write directions are projected on."""
    shutil.copytree(FIXTURES / name, to)
    config = load_config(to / "config.yaml")
    prompts = read_prompts(config.prompts, config.seed)
    written = json.loads((to / "results.json").read_text())["writes"].values()
    layers = sorted({write["locus"]["layer"] for write in written})
    rendered = [render(model.tokenizer, prompt) for prompt in prompts]
    extract(model, prompts, rendered, to / "activations.h5", CaptureSpec(layers=layers, positions=["post_last"]))
    return to


def mark_done(directory: Path, until: str = "report") -> None:
    """Mark every stage of a copied run as done in this checkout; an output that is left out becomes an empty file."""
    config = load_config(directory / "config.yaml")
    inputs, manifest = read_inputs(config).hashes, Manifest(directory / "manifest.json")
    for stage in in_order(stages_of(config), [until]):
        for name in stage.outputs:
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).touch()
        manifest.mark(stage.name, inputs[stage.name], manifest.outputs(stage.outputs), 12.0)
