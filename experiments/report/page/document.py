"""The HTML document: templates, style, scripts, terms, and a content policy that lets nothing else run or load."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from pydantic import JsonValue

from extract.atomic_write import atomic_file, make_folder
from extract.yaml_file import parse_yaml

HERE = Path(__file__).resolve().parent
SCRIPTS = ("dom.js", "charts.js", "tokens.js", "prompts.js", "page.js")  # in this order
IN_SCRIPTS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
MOST_CHARACTERS = 2000  # of a cell or a paragraph, since quoted data may have any length


@cache
def terms() -> dict[str, str]:
    """Return the terms that are explained where they stand, with their meanings."""
    return dict(parse_yaml((HERE / "terms.yaml").read_text(encoding="utf-8")))


@cache
def _term() -> re.Pattern[str]:
    words = "|".join(map(re.escape, sorted(terms(), key=len, reverse=True)))
    return re.compile(rf"(?<![\w-])({words})(?![\w-])")


def document(title: str, parts: Sequence[Markup]) -> str:
    """Return the whole page. The policy allows its own scripts alone, by hash, and no request."""
    own = '"use strict";\n' + "\n".join((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    bundle = vega_bundle()
    allowed = f"{script_hash(bundle)} {script_hash(own)}"
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"
    style = (HERE / "page.css").read_text(encoding="utf-8")
    return render(
        "document.html",
        title=title,
        policy=Markup(policy),
        style=Markup(style),
        bundle=Markup(bundle),
        script=Markup(own),
        parts=parts,
        terms=terms(),
    )


def write_page(html: str, path: Path) -> None:
    """Write a page; renamed into place when it is whole."""
    make_folder(path.parent)
    with atomic_file(path) as sink:
        sink.write(html.encode("utf-8", "backslashreplace"))


def render(template: str, **values: object) -> Markup:
    """Return a template of this folder with every value escaped."""
    return Markup(_environment().get_template(template).render(**values))


def json_script(text: str, name: str) -> Markup:
    """Return a script element with JSON as data; no text in it can end the element."""
    for character, written in IN_SCRIPTS.items():
        text = text.replace(character, written)
    return Markup(f'<script type="application/json" class="{name}">{text}</script>')


def to_json(value: Mapping[str, JsonValue]) -> str:
    """Return JSON without spaces; NaN is an error."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def shortened(text: str, n: int = MOST_CHARACTERS) -> str:
    """Return the first n characters of a text, with the number of characters left out."""
    return text if len(text) <= n else f"{text[:n]} … ({len(text) - n:,} characters more)"


@cache
def vega_bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, without a network; 0.9 MB."""
    return str(vl_convert.javascript_bundle())  # type: ignore[call-arg]


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"short": shortened, "terms": with_terms, "json_script": json_script, "anchor": anchor_of}
    return made


def script_hash(script: str) -> str:
    """Return the source of a content policy that allows this script alone."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def with_terms(text: str) -> Markup:
    """Return escaped text in which the first mention of each term is a button that opens its meaning."""
    parts, seen, end = [], set(), 0
    for match in _term().finditer(text):
        term = match[1]
        if term in seen:
            continue
        seen.add(term)
        parts += [
            escape(text[end : match.start()]),
            Markup('<button type="button" class="term" popovertarget="{}">{}</button>').format(anchor_of(term), term),
        ]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])


def anchor_of(term: str) -> str:
    """Return the id of a term's meaning in the page."""
    return "term-" + re.sub("[_ ]", "-", term.lower())
