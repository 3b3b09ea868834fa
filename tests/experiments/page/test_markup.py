"""Prompts, names and numbers are data: whatever they hold, the page shows it as text."""

import json
import re

import pytest

from experiments.page.document import document
from experiments.page.drawing import Mark, plane, x_of, y_of
from experiments.page.heat import Cell, heat_map
from experiments.page.markup import data, json_script, paragraphs, shortened, table

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"'><b>",
    "<!--",
    "\u202eabc",
    "&amp;",
    "]]>",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_an_element(text: str) -> None:
    mark = Mark(0.5, 0.5, "before", text)
    shown = (table([text], [[text, text]], text) + paragraphs([text]) + data(text) + plane(text, text, [mark])
             + heat_map(text, text, [text], [text], {(text, text): Cell(0.5, text, text)}))  # fmt: skip
    assert not re.search(r"<(script|img|b>|!--)", shown)
    assert 'data-tip="' in shown
    assert shown.count("<bdi>") >= 3  # and the direction of a text does not leak into what stands around it


@pytest.mark.parametrize("text", [*HOSTILE, "a\u2028b", "half \ud800 of a pair"])
def test_no_text_ends_the_script_it_stands_in(text: str) -> None:
    script = json_script("payload", {"text": [text]})
    inside = script.removeprefix('<script type="application/json" class="payload">').removesuffix("</script>")
    assert not set(inside) & set("<>&\u2028\u2029")
    written = inside.encode("utf-8", "backslashreplace").decode()
    assert json.loads(written) == {"text": [text]}


def test_only_the_page_s_own_script_may_run_and_nothing_is_loaded() -> None:
    page = document("<title>", ["<p>x</p>"])
    assert "<title>&lt;title&gt;</title>" in page
    assert "default-src 'none'" in page
    assert len(re.findall(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'\"", page)) == 1
    assert not re.search(r"(src|href)=\"?(http|//)", page)


def test_long_texts_are_cut_and_it_is_said() -> None:
    assert shortened("a" * 100_000, 3) == "aaa … (99,997 characters more)"
    assert shortened("abc", 3) == "abc"


def test_a_chart_places_shares_on_its_axes() -> None:
    assert (x_of(0), x_of(1), y_of(0), y_of(1)) == (52, 336, 254, 12)
    shown = plane("x", "y", [Mark(0.25, 0.5, "before", "told", (0.1, 0.4), None)], live="overconfidence")
    assert f"translate({x_of(0.25)} {y_of(0.5)})" in shown
    assert f"M{x_of(0.1)} {y_of(0.5)}H{x_of(0.4)}" in shown
    assert 'data-live="overconfidence"' in shown
