"""All benchmarks of dials inside vLLM: `python -m benchmarks.in_vllm [--quick]`; the last line has every figure.

With `--quick` only the cost of a token, since CI has three minutes; a slow test runs the quick load.
"""

from __future__ import annotations

import json
import subprocess
import sys

from extract.shipped import ROOT

PARTS = {"overhead": ["--short"], "load": []}


def main() -> None:
    """Run each part in a process of its own, since vLLM takes the whole of one."""
    found: dict[str, float] = {}
    quick = "--quick" in sys.argv
    for part, given in {"overhead": ["--quick"]}.items() if quick else PARTS.items():
        command = [sys.executable, "-m", f"benchmarks.in_vllm.{part}", *given]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        found |= json.loads(done.stdout.strip().splitlines()[-1])
    for name, value in found.items():
        print(f"{name:<40} {value:.4g}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
