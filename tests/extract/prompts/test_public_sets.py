"""The descriptions of public sets on their authors' own files, which are not committed."""

import json
import re
import warnings
from collections import Counter
from pathlib import Path

import pytest

from extract.prompts.dataset import describe, load_dataset
from extract.prompts.prompt import Prompt
from scoring.fields import states
from tests.extract.prompts.test_dataset import DATA, labels, real

SETS = {  # the names of their authors' files, by those of ours
    "advbench": {"advbench.csv": "harmful_behaviors.csv"},
    "harmbench": {"harmbench_val.csv": "harmbench_behaviors_text_val.csv",
                  "harmbench_test.csv": "harmbench_behaviors_text_test.csv"},
    "strongreject": {"strongreject.csv": "strongreject_dataset.csv"},
    "jailbreakbench": {"jailbreakbench.csv": "harmful-behaviors.csv"},
    "sorry-bench": {"sorry-badq.json": "question.json"},
    "do-not-answer": {"do_not_answer_en.csv": "data_en.csv"},
    "or-bench": {"or-bench-hard-1k.csv": "or-bench-hard-1k.csv"},
    "oktest": {"oktest.csv": "OKTest.csv"},
    "orfuzz": {"orfuzz.csv": "ORFuzz.csv"},
    "simple-qa": {"simple_qa_test_set.csv": "simple_qa_test_set.csv"},
    "truthful-qa": {"TruthfulQA.csv": "TruthfulQA.csv"},
    "mmlu": {"zero_shot_mmlu_val.json": "zero_shot_mmlu_val.json"},
    "nq-open": {"NQ-open.dev.jsonl": "NQ-open.dev.jsonl"},
    "falseqa": {"falseqa_train.csv": "train.csv"},
    "crepe": {"crepe_answerable_val.json": "crepe_answerable_val.json",
              "crepe_unanswerable_val.json": "crepe_unanswerable_val.json"},
    "mip-overthinking": {"mip_gsm8k.json": "gsm8k.json", "mip_svamp.json": "svamp.json"},
    "clariq": {"clariq_train.tsv": "train.tsv"},
}  # fmt: skip


def authors_own(name: str, folder: Path) -> list[Prompt]:
    """Read a set from a folder with its authors' file names, or from its one file."""
    for ours, own in SETS[name].items():
        (folder / own).symlink_to(DATA / "sets" / ours)
    files = list(folder.iterdir())
    return load_dataset(name, files[0] if len(files) == 1 else folder)


@real
@pytest.mark.parametrize("name", SETS)
def test_each_set_reads_its_authors_files_twice_alike(name: str, tmp_path: Path) -> None:
    prompts, described_set = authors_own(name, tmp_path), describe(name)
    present = [part for part in described_set.parts.values() if (tmp_path / part.file).exists()] or list(
        described_set.parts.values()
    )
    expected: Counter[str] = Counter()
    for part in present:
        expected.update(part.rows)
    assert {label: n for label, n in labels(prompts).items() if label != "dual_use"} == expected
    again = load_dataset(name, next(tmp_path.iterdir()) if len(SETS[name]) == 1 else tmp_path)
    assert again == prompts
    assert all(prompt.text.strip() and prompt.id.startswith(f"{name}/") for prompt in prompts)


@real
def test_frames_are_removed_and_contexts_stand_before_the_request(tmp_path: Path) -> None:
    (tmp_path / "crepe").mkdir()
    for prompt in authors_own("crepe", tmp_path / "crepe"):
        assert "unanswerable" not in prompt.text
        assert not re.search(r"Answer: *$", prompt.text)
    (tmp_path / "harmbench").mkdir()
    harmbench = authors_own("harmbench", tmp_path / "harmbench")
    assert sum("\n\n---\n\n" in prompt.text for prompt in harmbench) == 100
    assert labels(harmbench) == {"harmful": 300, "dual_use": 100}


@real
def test_every_answer_that_is_right_counts(tmp_path: Path) -> None:
    by_text = {prompt.text: prompt for prompt in authors_own("nq-open", tmp_path)}
    moon = by_text["when was the last time anyone was on the moon"]
    assert moon.answer == "14 December 1972 UTC | December 1972"
    assert states("It was in December 1972.", moon.answer)
    assert not states("It was in 1969.", moon.answer)


@real
def test_a_file_that_its_authors_changed_is_noticed(tmp_path: Path) -> None:
    own = real_file("truthful-qa")
    copy = tmp_path / "TruthfulQA.csv"
    copy.write_bytes(own)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = load_dataset("truthful-qa", copy)
    lines = own.decode().splitlines(keepends=True)
    copy.write_text("".join(lines[:-1]))
    with pytest.warns(UserWarning, match=r"TruthfulQA.csv is not the file that truthful-qa was described from"):
        assert len(load_dataset("truthful-qa", copy)) == len(before) - 1


def real_file(name: str) -> bytes:
    (ours,) = SETS[name]
    return (DATA / "sets" / ours).read_bytes()


def test_the_shape_that_a_set_is_described_with_is_read(tmp_path: Path) -> None:
    """Rows as the sets' authors describe them: the files themselves are not here (`untested`)."""
    one_answer = {"id": "1", "question": "who?", "annotations": {"type": ["singleAnswer"], "answer": [["X", "Y"]]}}
    several = {"id": "2", "question": "when?", "annotations": {"type": ["multipleQAs"], "answer": [[]]}}
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, [one_answer, several])))
    found = load_dataset("ambigqa", tmp_path / "train.jsonl")
    assert [(p.label, p.answer, p.right_action) for p in found] == [
        ("benign", "X | Y", "answer"), ("uncertain", None, "clarify")
    ]  # fmt: skip
    rows = [
        {"inputs": "Q: Who won?\n  choice: A\n  choice: Unknown\nA:", "targets": targets}
        for targets in (["A"], ["Unknown"])
    ]
    for file in ("train", "validation"):
        (tmp_path / f"{file}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = load_dataset("bigbench-known-unknowns", tmp_path)
    assert [(p.text, p.label, p.answer) for p in found] == 2 * [
        ("Who won?", "benign", "A"), ("Who won?", "uncertain", None)
    ]  # fmt: skip
    rows = [
        {"question": "why?", "unknown": True, "category": "future unknown"},
        {"question": "who?", "unknown": False, "category": None},
    ]
    (tmp_path / "knowns_unknowns.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert [(p.label, p.right_action) for p in load_dataset("kuq", tmp_path)] == [
        ("uncertain", "abstain"),
        ("benign", "answer"),
    ]
    (tmp_path / "qaqa.csv").write_text("question,all_assumptions_valid\nwho?,has_invalid\nwhen?,all_valid\n")
    assert [(p.label, p.right_action) for p in load_dataset("qaqa", tmp_path / "qaqa.csv")] == [
        ("uncertain", "correct_premise"), ("benign", "answer")
    ]  # fmt: skip
    (tmp_path / "freshqa.csv").write_text(
        "split,question,false_premise,fact_type,answer_0\nTEST,a?,FALSE,slow-changing,X\nTEST,b?,FALSE,fast-changing,Y\n"
        "TEST,c?,TRUE,never-changing,Z\nDEV,d?,FALSE,slow-changing,X\n"
    )
    assert [(p.text, p.label, p.answer, p.right_action) for p in load_dataset("freshqa", tmp_path)] == [
        ("a?", "benign", "X", "answer"),
        ("b?", "uncertain", None, "abstain"),
        ("c?", "uncertain", None, "correct_premise"),
    ]  # fmt: skip
