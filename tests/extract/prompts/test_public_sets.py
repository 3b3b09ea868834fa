"""The descriptions of public sets on their authors' own files, which are not committed."""

import json
import re
import warnings
from collections import Counter
from pathlib import Path

import pytest

from extract.prompts.dataset import describe, load_dataset
from extract.prompts.prompt import Prompt
from scoring.known_answer import states
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
    parts, expected = described_set.parts.values(), Counter[str]()
    for part in [part for part in parts if (tmp_path / part.file).exists()] or parts:
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
    own = (DATA / "sets" / "TruthfulQA.csv").read_bytes()
    copy = tmp_path / "TruthfulQA.csv"
    copy.write_bytes(own)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = load_dataset("truthful-qa", copy)
    lines = own.decode().splitlines(keepends=True)
    copy.write_text("".join(lines[:-1]))
    with pytest.warns(UserWarning, match=r"TruthfulQA.csv is not the file that truthful-qa was described from"):
        assert len(load_dataset("truthful-qa", copy)) == len(before) - 1


AMBIGUOUS = [{"id": "1", "question": "who?", "annotations": {"type": ["singleAnswer"], "answer": [["X", "Y"]]}},
             {"id": "2", "question": "when?", "annotations": {"type": ["multipleQAs"], "answer": [[]]}}]  # fmt: skip
CHOICES = [{"inputs": "Q: Who won?\n  choice: A\n  choice: Unknown\nA:", "targets": [it]} for it in ("A", "Unknown")]
KNOWN = [{"question": "why?", "unknown": True, "category": "future unknown"},
         {"question": "who?", "unknown": False, "category": None}]  # fmt: skip
FRESH = """split,question,false_premise,fact_type,answer_0
TEST,a?,FALSE,slow-changing,X
TEST,b?,FALSE,fast-changing,Y
TEST,c?,TRUE,never-changing,Z
DEV,d?,FALSE,slow-changing,X
"""
CHOSEN = [("Who won?", "benign", "A", "answer"), ("Who won?", "uncertain", None, "abstain")]


@pytest.mark.parametrize(
    ("name", "files", "found"),
    [
        ("ambigqa", {"train.jsonl": AMBIGUOUS},
         [("who?", "benign", "X | Y", "answer"), ("when?", "uncertain", None, "clarify")]),
        ("bigbench-known-unknowns", {"train.jsonl": CHOICES, "validation.jsonl": CHOICES}, 2 * CHOSEN),
        ("kuq", {"knowns_unknowns.jsonl": KNOWN},
         [("why?", "uncertain", None, "abstain"), ("who?", "benign", None, "answer")]),
        ("qaqa", {"qaqa.csv": "question,all_assumptions_valid\nwho?,has_invalid\nwhen?,all_valid\n"},
         [("who?", "uncertain", None, "correct_premise"), ("when?", "benign", None, "answer")]),
        ("freshqa", {"freshqa.csv": FRESH}, [("a?", "benign", "X", "answer"), ("b?", "uncertain", None, "abstain"),
                                             ("c?", "uncertain", None, "correct_premise")]),
    ],
)  # fmt: skip
def test_rows_are_read_as_their_authors_describe_them(tmp_path: Path, name: str, files: dict, found: list) -> None:
    for file, rows in files.items():
        (tmp_path / file).write_text(rows if isinstance(rows, str) else "\n".join(map(json.dumps, rows)))
    prompts = load_dataset(name, tmp_path if len(files) > 1 else tmp_path / next(iter(files)))
    assert [(p.text, p.label, p.answer, p.right_action) for p in prompts] == found
