"""Prompts, names and numbers are data: whatever they hold, the page shows it as text."""

import json
import re

import pytest

from experiments.charts.blocks import Figure, Heading, figure
from experiments.charts.grids import heat_map
from experiments.report.page.document import (
    anchor_of,
    document,
    json_script,
    shortened,
    terms,
    to_json,
    vega_bundle,
    with_terms,
)
from experiments.triggers.results import AttributedRequest
from experiments.triggers.text import marked_request
from extract.table import Paragraph, Quoted, Request, Table, markdown
from tests.support.report_page import blocks_html

HOSTILE = ["<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "\"'><b>", "<!--", "\u202eabc",
           "&amp;", "]]>"]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_an_element(text: str) -> None:
    cell = {"column": text, "row": text, "estimate": 0.5, "low": 0.4, "high": 0.6, "n": text}
    chart = heat_map([cell], title=text, columns=text, lines=text, unit=text, domain=(0, 1))
    shown = blocks_html([
        Table(text, [text], [[text, Quoted("harmful", text)]]), Table(text, [text], [[text]], fold=True), text,
        Paragraph(text, text), Heading(text), Request(text, [(text, 2.0), (text, None)]),
        Figure("a", text, json.dumps({"title": text}), None),
        figure("b", chart, text, [cell], {"row": text, "estimate": "value"}),
    ])  # fmt: skip
    assert not re.search(r"<(script(?! type=\"application/json\" class=\"spec\">)|img|b>|!--)", shown)
    assert shown.count("<bdi>") >= 3  # and the direction of a text does not leak into what stands around it
    assert with_terms(f"{text} AUROC {text}").count("<button") == 1
    assert not re.search(r"<(script|img|b>|!--)", with_terms(f"{text} AUROC {text}"))


@pytest.mark.parametrize("text", [*HOSTILE, "a\u2028b", "half \ud800 of a pair"])
def test_no_text_ends_the_script_it_stands_in(text: str) -> None:
    script = json_script(to_json({"text": [text]}), "payload")
    inside = script.removeprefix('<script type="application/json" class="payload">').removesuffix("</script>")
    assert not set(inside) & set("<>&\u2028\u2029")
    written = inside.encode("utf-8", "backslashreplace").decode()
    assert json.loads(written) == {"text": [text]}


def test_only_the_page_s_own_scripts_may_run_whole_and_nothing_is_loaded() -> None:
    assert not re.search(r"</script|<!--", vega_bundle(), re.IGNORECASE)  # Vega's script cannot end its element
    page = document("<title>", [blocks_html(["x"])])
    assert "<title>&lt;title&gt;</title>" in page
    assert "default-src 'none'" in page
    assert len(re.findall(r"script-src 'sha256-[A-Za-z0-9+/=]{44}' 'sha256-[A-Za-z0-9+/=]{44}'\"", page)) == 1
    assert not re.search(r"(src|href)=\"?(http|//)", page.replace(vega_bundle(), ""))


def test_long_texts_are_cut_and_it_is_said() -> None:
    assert shortened("a" * 100_000, 3) == "aaa … (99,997 characters more)"
    assert shortened("abc", 3) == "abc"
    line = "x" * 100_000
    assert len(blocks_html([Table("", ["a", "b"], [[line, line]]), line])) < 7_500


def test_a_harmful_prompt_waits_to_be_opened() -> None:
    shown = blocks_html([Table("", ["a", "b", "c"], [["x", Quoted("harmful", "<b>"), Quoted("benign", "<i>")]])])
    closed = re.search(r"<td>\s*<details class=\"harmful\">(.*?)</details>", shown, re.DOTALL)
    assert closed is not None
    assert "<bdi>&lt;b&gt;</bdi>" in closed[1]
    assert "<bdi>&lt;i&gt;</bdi>" not in closed[1]


def test_a_request_of_many_words_is_cut_and_each_word_keeps_its_direction_to_itself() -> None:
    request = AttributedRequest.model_construct(
        label="harmful", words=("\u202ekill", *["word"] * 20_000), scores=(7.0, *[0.0] * 20_000)
    )
    shown = blocks_html([marked_request(request)])
    assert "<mark><bdi>\u202ekill</bdi>" in shown
    assert "words more)" in shown
    assert len(shown) < 20_000
    assert "<summary>" in shown


def test_a_term_is_explained_once_a_text_and_not_inside_another_word() -> None:
    shown = with_terms("AUROC of inst_last, inst_lastly and inst_last; uncertified, certified")
    assert re.findall(r'popovertarget="([^"]+)"', shown) == ["term-auroc", "term-inst-last", "term-certified"]
    page = document("t", [])
    for term in terms():
        assert page.count(f'<div popover id="{anchor_of(term)}"') == 1


def test_a_cell_stays_in_its_cell_in_markdown() -> None:
    table = Table("title", ["a", "b|c"], [["x\ny", Quoted("harmful", "p | q")]])
    assert markdown(table).splitlines() == ["| a | b\\|c |", "| --- | --- |", "| x y | p \\| q |"]
