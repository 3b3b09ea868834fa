"""A run directory where a file of one is meant, and a directory where results are to go."""

import json
import shutil
from pathlib import Path

import pytest

from extract.atomic_write import make_folder
from extract.errors import UserError
from extract.run_directory import file_to_write
from extract.shipped import ROOT
from tests.support.one_line import one_line, printed

ORGANISM = str(ROOT / "organisms" / "zoo" / "two-knobs")


@pytest.fixture(scope="module")
def finished(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(small_run, tmp_path_factory.mktemp("own") / "run"))


def contents(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_the_store_commands_take_the_run(cli, finished: Path, tmp_path: Path) -> None:
    store = finished / "activations.h5"
    for command in ("info", "verify"):
        by_run, by_file = (cli("store", command, str(given), "--json")[:2] for given in (finished, store))
        assert by_run == by_file
        assert by_run[0] == 0
    out = printed(cli("store", "export", str(finished), "--to", str(tmp_path)))
    assert out.startswith(f"{tmp_path / 'activations.h5'}: ")
    assert cli("store", "verify", str(tmp_path))[0] == 0


def test_dials_are_found_in_the_run(cli, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("generate", ORGANISM, "how do i fix it?", "--max-new-tokens", "2", "--json")
    by_run, by_file = (cli(*asked, "--dials", str(given))[:2] for given in (finished, finished / "dials.safetensors"))
    assert by_run == by_file
    assert "threshold" in by_run[1]
    for command in (asked, ("chat", ORGANISM), ("serve", ORGANISM)):
        said = one_line(cli(*command, "--dials", str(ROOT / "configs")))
        assert said.endswith("configs is a directory without dials.safetensors; make it with: refusal steer CONFIG")


def test_a_run_is_scored_with_its_own_prompts_and_keeps_its_files(cli, finished: Path) -> None:
    before = contents(finished)
    card = json.loads(printed(cli("score", str(finished), "--json")))
    assert card["rates"]["over_refusal"]["n"] > 10
    after = contents(finished)
    assert set(after) - set(before) == {"scored.jsonl", "scorecard.json"}
    assert {name: after[name] for name in before} == before
    prompts = str(finished / "prompts.jsonl")
    given = cli("score", str(finished / "completions.jsonl"), "--prompts", prompts, "--json")
    assert json.loads(given[1])["rates"] == card["rates"]


def test_a_run_is_scored_by_its_own_judge(cli, finished: Path, tmp_path: Path) -> None:
    config = finished / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("judge: rules", "judge: configs/judges/classifier.yml"))
    try:
        assert "no judge named 'configs/judges/classifier.yml'" in one_line(cli("score", str(finished)))
        card = json.loads(printed(cli("score", str(finished), "--judge", "rules", "--out", str(tmp_path), "--json")))
        assert card["judge"]["judge"] == "rules"
    finally:
        config.write_text(text)


def test_a_directory_without_completions_is_one_line(cli, tmp_path: Path) -> None:
    said = one_line(cli("score", str(tmp_path)))
    assert said == f"{tmp_path} is a directory without completions.jsonl; make it with: refusal run CONFIG"
    assert list(tmp_path.iterdir()) == []
    shutil.copy(ROOT / "tests" / "fixtures" / "small_run" / "completions.jsonl", tmp_path)
    (tmp_path / "config.yaml").write_text("mine: 1\n")
    said = "config.yaml is not the configuration of a run; give the prompts with --prompts FILE"
    one_line(cli("score", str(tmp_path)), said)


def test_a_stage_goes_on_in_the_run_it_is_given(cli, finished, monkeypatch, tmp_path) -> None:
    asked: list[Path] = []
    monkeypatch.setattr("experiments.pipeline.stages.run", lambda config, directory, **how: asked.append(directory))
    cli("extract", str(finished))
    cli("extract", str(finished), "--out", str(tmp_path))
    cli("extract", str(ROOT / "configs" / "quickstart.yaml"))
    assert asked == [finished, tmp_path, Path("runs/quickstart")]
    code, _, err = cli("extract", str(tmp_path))
    assert code == 2
    assert "is a directory; give a YAML configuration" in err


def test_out_is_a_directory_and_a_page_of_its_own_name_still_works(tmp_path: Path) -> None:
    named = [file_to_write(Path(given), "report.html", ".html") for given in ("pages", "v1.2", "page.html", ".")]
    assert named == [Path("pages/report.html"), Path("v1.2/report.html"), Path("page.html"), Path("report.html")]
    (tmp_path / "odd.html").mkdir()
    assert file_to_write(tmp_path / "odd.html", "report.html", ".html") == tmp_path / "odd.html" / "report.html"
    with pytest.raises(UserError, match=r"--out page\.pdf: give a directory, or a name that ends in \.html"):
        file_to_write(Path("page.pdf"), "report.html", ".html")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file: File exists"):
        make_folder(tmp_path / "file")


def test_the_report_takes_a_directory(cli, finished, monkeypatch, tmp_path) -> None:
    written: list[Path] = []
    monkeypatch.setattr("experiments.report.stage.write_report", lambda runs, path: written.append(path))
    for given in ((), ("--out", str(tmp_path / "new")), ("--out", str(tmp_path / "page.html"))):
        assert cli("report", str(finished), *given)[0] == 0
    assert cli("report", str(finished), str(finished))[0] == 0
    pages = [finished / "report.html", tmp_path / "new" / "report.html", tmp_path / "page.html", Path("report.html")]
    assert written == pages


@pytest.mark.parametrize("override", ["extract.layers=[99]", "extract.positions=[nowhere]", "model.name=owner/nothing"])
def test_a_setting_that_does_not_hold_costs_a_finished_run_nothing(cli, finished: Path, override: str) -> None:
    before = contents(finished)
    code, out, err = cli("run", str(finished), "--set", override, "--out", str(finished))
    assert (code, out) == (2, "")
    assert [line.partition(":")[0] for line in err.strip().splitlines()][-1] == "refusal"  # a note may come before it
    assert "Traceback" not in err
    assert contents(finished) == before
