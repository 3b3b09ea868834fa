"""`import refusal` is light, every name is there and explained, every example runs, and no repr dumps an array."""

from __future__ import annotations

import doctest
import importlib
import inspect
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import refusal
from extract import render
from probes import Contrast
from steering import steering

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "transformers", "pandas", "numpy", "altair", "sklearn", "matplotlib")
PACKAGES = ("extract", "probes", "steering", "scoring", "judging", "organisms", "experiments", "serving", "refusal")


def _examples() -> list[doctest.DocTest]:
    """Return the examples that `help()` shows: of every public name, and of the methods of classes."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [example for name in refusal.__all__ for example in finder.find(getattr(refusal, name), name)]
    return [example for example in found if example.examples]


def test_importing_the_packages_loads_nothing_heavy() -> None:
    code = (
        f"import sys, {', '.join(PACKAGES)}\n"
        f"loaded = [name for name in {HEAVY!r} if name in sys.modules]; assert not loaded, loaded\n"
        f"assert all(set(package.__all__) <= set(dir(package)) for package in ({', '.join(PACKAGES)}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_resolves(name: str) -> None:
    package = importlib.import_module(name)
    assert all(getattr(package, public) is not None for public in package.__all__)
    with pytest.raises(AttributeError):
        package.no_such_name  # noqa: B018


def test_every_public_name_is_explained_with_an_example_and_examples_are_found() -> None:
    assert all(">>> " in (inspect.getdoc(getattr(refusal, name)) or "") for name in refusal.__all__)
    assert {*refusal.__all__, "Model.steer", "Model.activations"} <= {example.name for example in _examples()}


@pytest.mark.parametrize("example", _examples(), ids=lambda example: example.name)
def test_an_example_runs_as_it_is_printed(example, model, notebook, monkeypatch, capsys) -> None:
    monkeypatch.chdir(notebook)
    if example.name != "load_model":
        monkeypatch.setattr(refusal, "load_model", {model.name: model}.__getitem__)  # loaded once for all
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(example, clear_globs=True)
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out


def test_a_repr_is_one_short_line(model, found, harm, notebook) -> None:
    run = notebook / "runs" / "quickstart"
    labels = [label == "harmful" for label in found.labels]
    long = refusal.WordScores("x", ("word" * 30,) * 40, tuple(map(float, range(40))), 0.5, None)
    batch = model.batch([render(model.tokenizer, prompt) for prompt in found.prompts[:2]])
    first = replace(found, values=found.values[:1], layers=(0,))
    probes = refusal.probe_layers(first, labels, n_folds=2, progress=False)
    dials = refusal.load_dials(run)
    with steering(model, dials.dials, batch, [render(model.tokenizer, p) for p in found.prompts[:2]]) as readings:
        model.generate(batch, 1)
    contrast = Contrast("y", range(4), [1, 0, 1, 0], range(4), ["train"] * 4)  # type: ignore[arg-type]
    scored = refusal.score([{"label": "benign", "completion": "Sure."}])
    for one in (batch, readings, contrast, dials.dials[0].probe, probes.scores[0], probes, model, found, harm, dials,
                refusal.load_run(run), refusal.Judge(), long, refusal.WordScores("x", (), (), 0.5, None),
                refusal.certify(1, 60), scored):  # fmt: skip
        assert "\n" not in repr(one)
        assert len(repr(one)) < 300, repr(one)
        assert "array" not in repr(one)
        assert not any(word in repr(one) for word in ("object at 0x", "tensor("))
