"""The HTML document: style, script, and a content policy that allows nothing else to run or load."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = ("counting.js", "tips.js", "scatter.js", "page.js")  # as one script, in this order


def document(title: str, parts: Sequence[str]) -> str:
    """Return the whole page. The policy allows its own script alone, by hash, and no request."""
    style = (HERE / "page.css").read_text(encoding="utf-8")
    script = '"use strict";\n' + "\n".join((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title><style>{style}</style></head>
<body><a class="skip" href="#main">Skip to the report</a><main id="main">
{"".join(parts)}
</main><div id="tip" aria-hidden="true" hidden></div>
<div id="announcement" class="away" role="status"></div><script>{script}</script></body></html>
"""
