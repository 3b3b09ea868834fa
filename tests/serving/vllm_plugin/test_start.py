"""Why vLLM does not start, in one line, and what it prints meanwhile; vLLM itself is started in tests/vllm."""

import os
import subprocess
import sys
import time

import pytest

from serving.vllm_plugin.engine import held_back, why

FAILED = RuntimeError("Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}")
WORKER = "(VllmWorker-0 pid=8875) ERROR 11-26 06:19:31 [multiproc_executor.py:953] "
CPU = ("Available memory on node 0 (15.11/18.09 GiB) on startup is less than desired CPU memory utilization (0.92, "
       "16.64 GiB). On the CPU backend, the `--gpu-memory-utilization` flag controls the fraction.")  # fmt: skip


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ([f"{WORKER}Traceback (most recent call last):", f"{WORKER}ValueError: {CPU}", f"{WORKER}Exception: see trace"],
         "Available memory on node 0 (15.11/18.09 GiB) on startup is less than desired CPU memory utilization (0.92, "
         "16.64 GiB); set --engine-arg gpu_memory_utilization=0.5, or end other processes that use this memory"),
        (["extract.errors.UserError: d.safetensors was made for other weights"],
         "d.safetensors was made for other weights"),
        (["ValueError: Bfloat16 is not supported, use `--dtype=half` instead"],
         "Bfloat16 is not supported, use `--dtype=half` instead; set --engine-arg dtype=half"),
        (["nothing of use"], "Engine core initialization failed"),
    ],
)  # fmt: skip
def test_the_first_error_of_its_processes_is_the_cause(printed: list[str], line: str) -> None:
    assert why(FAILED, printed) == line


def test_an_error_before_its_processes_start_is_the_cause() -> None:
    assert why(TypeError("no such argument 'x'"), ["ValueError: of no account"]) == "no such argument 'x'"


@pytest.mark.parametrize("level", [None, "INFO"])
def test_what_processes_print_while_they_start_is_held_back(
    level: str | None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", str(level))
    if level is None:
        monkeypatch.delenv("VLLM_LOGGING_LEVEL")  # and unset again after the test
    code = "print('early'); input(); print('late')"
    with held_back() as printed:
        os.write(1, b"mine\n")  # past the stream that pytest puts in place
        child = subprocess.Popen([sys.executable, "-uc", code], stdin=subprocess.PIPE)
        while "early" not in printed:
            time.sleep(0.01)
    print("after")
    child.communicate(b"\n")
    out, err = capfd.readouterr()
    while "late" not in err:  # a thread passes it on
        err += capfd.readouterr().err
    assert out == "after\n"
    assert err.split() == (["mine", "early", "late"] if level else ["late"])


def test_a_failure_has_all_that_was_printed(capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []

    def start() -> None:
        nonlocal lines
        with held_back() as lines:
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(.2); print('the cause', flush=True)"])
            raise FAILED

    with pytest.raises(RuntimeError):
        start()
    assert lines == ["the cause"]
    print("later")
    assert capfd.readouterr() == ("later\n", "")
