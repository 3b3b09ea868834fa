"""A full disk during writing or export gives an error, and only finished files remain."""

import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from extract.errors import UserError
from extract.store.integrity import verify
from extract.store.writer import export, finish, writing
from tests.support.made_up_store import captured, index, made_up, make, nothing_left_over, shards
from tests.support.one_line import refused

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("room", [0, 100, 1000, 3000, 9000])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_failed_write_is_reported_and_leaves_no_file(
    path: Path, small_files: Callable[[int], None], room: int, dtype: str
) -> None:
    with writing(made_up(path, dtype=dtype)) as files:
        files.write(0, captured(files.rows(0)))
        big = shards(path)[0].stat().st_size
        small_files(min(room, big - 1))
        for _ in range(2):  # HDF5 is as good as new after the first
            with pytest.raises(UserError, match=r"cannot write .*00001-of-00003\.h5: File too large; .* free disk"):
                files.write(1, captured(files.rows(1)))
        small_files(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        names = {file.name for file in path.with_name("activations.h5.shards").iterdir() if file.suffix != ".lock"}
        assert names == {"00000-of-00003.h5"}
        files.write(1, captured(files.rows(1)))
        files.write(2, captured(files.rows(2)))
        small_files(5000)
        refused(r"cannot write .*activations\.h5: File too large", finish, files, *index(), {})
        assert not path.exists()
        small_files(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        finish(files, *index(), {})
    nothing_left_over(path)
    assert verify(path).findings == ()


@pytest.mark.parametrize(
    ("what", "steps"),
    [("export", 3), *(pytest.param(what, 60, marks=pytest.mark.slow) for what in ("master", "export"))],
)
def test_a_disk_that_fills_anywhere_in_a_file_is_reported(  # type: ignore[type-arg]
    what: str, steps: int, path: Path, small_files: Callable
) -> None:
    """In a process of its own each time, since HDF5 that lost its way may crash, and only at exit."""
    make(path, master=True)
    export(path, path.with_name("whole.h5"))
    whole = (path if what == "master" else path.with_name("whole.h5")).stat().st_size
    code = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[1])
        from tests.support import made_up_store as m
        from extract.errors import UserError
        from extract.store.writer import export
        path, what, whole, steps, reported = Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), 0
        for step in range(steps):
            resource.setrlimit(resource.RLIMIT_FSIZE, (whole * step // steps, resource.RLIM_INFINITY))
            try:
                if what == "export":
                    export(path, path.with_name("out.h5"))
                else:
                    path.unlink(missing_ok=True)
                    m.make(path, shards=(), master=True)
            except UserError as error:
                reported += "File too large" in str(error)
        print(reported)
    """)
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), str(path), what, str(whole), str(steps)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, str(steps)), done.stderr[-2000:]
    assert not list(path.parent.rglob("*.partial"))
    assert not path.with_name("out.h5").exists()
