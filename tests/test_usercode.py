from __future__ import annotations

import py_compile
import sys
from pathlib import Path

import numpy as np
import pytest

from verify.core import NotComparable, UsageError
from verify.usercode import is_reference, recording_files, resolve


def write(folder: Path, text: str, name: str = "build.py") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder


def test_a_function_is_found_and_called(tmp_path):
    assert resolve("build.py:f", write(tmp_path, "def f(a): return a + 1"))(1) == 2


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("bild.py:f", r"no such file; did you mean 'build\.py'\?"),
        ("build.py:sorce", r"has no function 'sorce'; did you mean 'source'\?"),
        ("build.py:number", "has no function 'number'"),
    ],
)
def test_what_does_not_exist_is_named_with_the_nearest(tmp_path, reference, message):
    write(tmp_path, "number = 3\ndef source(): pass")
    with pytest.raises(UsageError, match=message):
        resolve(reference, tmp_path)


BROKEN = {
    "import": ("import nothing_of_that_name\ndef f(): pass", ":1: ModuleNotFoundError"),
    "syntax": ("def f(): pass\n\nx = = 1", ":3: SyntaxError"),
    "exit": ("def f():\n    raise SystemExit('bye')", ":2: SystemExit: bye"),
    "call": ("import json\ndef g():\n    json.loads('{')\ndef f():\n    g()", ":3: JSONDecodeError"),
    "many lines": ("def f():\n    raise ValueError('one\\ntwo')", ":2: ValueError: one two"),
    "generator": ("def f():\n    yield 1\n    raise KeyError('x')", ":3: KeyError: 'x'"),
}


@pytest.mark.parametrize("text, message", BROKEN.values(), ids=BROKEN)
def test_what_user_code_raises_is_one_line_with_its_place(tmp_path, text, message):
    write(tmp_path, text)
    with pytest.raises(UsageError, match=r"build\.py" + message) as caught:
        list(resolve("build.py:f", tmp_path)() or ())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "module, advice", [("onnxscript", "dynamo=False"), ("nothing_of_that_name", "install it for ")]
)
def test_a_module_that_is_not_installed_is_no_fault_of_the_code(tmp_path, module, advice):
    error = f"ModuleNotFoundError('No module named {module}', name={module!r})"
    write(tmp_path, f"def f():\n    raise {error}")
    with pytest.raises(UsageError, match=advice):
        resolve("build.py:f", tmp_path)()


def test_our_own_errors_and_interrupts_pass_through(tmp_path):
    write(
        tmp_path,
        "from verify.core import NotComparable\ndef f(): raise NotComparable('x')\ndef g(): raise KeyboardInterrupt",
    )
    with pytest.raises(NotComparable):
        resolve("build.py:f", tmp_path)()
    with pytest.raises(KeyboardInterrupt):
        resolve("build.py:g", tmp_path)()


def test_a_module_that_failed_is_imported_anew(tmp_path):
    write(tmp_path, "raise ValueError('not yet')")
    with pytest.raises(UsageError):
        resolve("build.py:f", tmp_path)
    assert resolve("build.py:f", write(tmp_path, "def f(): return 'mended'"))() == "mended"


def test_it_is_imported_once_and_again_when_it_changed(tmp_path):
    write(tmp_path, "calls = []\ndef f():\n    calls.append(1)\n    return len(calls)")
    assert [resolve("build.py:f", tmp_path)() for _ in range(2)] == [1, 2]
    write(tmp_path, "def f(): return 'changed'")
    assert resolve("build.py:f", tmp_path)() == "changed"


def test_two_candidates_have_files_of_the_same_name(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name, f"which = '{name}'", "helper.py")
        write(
            tmp_path / name,
            "import helper\ndef f(): return helper.which\ndef g():\n    import helper\n    return helper.which",
        )
    assert [resolve("build.py:f", tmp_path / name)() for name in "ab"] == ["a", "b"]
    assert [resolve("build.py:g", tmp_path / name)() for name in "aba"] == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("build.py:f", True), ("a/b.py:f", True), ("m.onnx", False), ("a:b.onnx", False), ("b.py", False)],
)
def test_references_are_told_from_paths(text, wanted):
    assert is_reference(text) is wanted


READER = """
from pathlib import Path
import helper
import json
import numpy as np

HERE = Path(__file__).parent

def f():
    with open(HERE / "text.txt") as stream:
        stream.read()
    np.load(HERE / "array.npy")
    with open(HERE / "written.txt", "w") as stream:
        stream.write("x")
    open("/proc/self/status").close()
    open(json.__file__).close()
"""


def folder_of_reader(folder: Path) -> Path:
    (folder / "text.txt").write_text("x")
    (folder / "unread.txt").write_text("x")
    np.save(folder / "array.npy", np.zeros(1))
    write(folder, "x = 1", "helper.py")
    py_compile.compile(str(folder / "helper.py"))  # so that its source itself is not opened
    return write(folder, READER)


def test_files_that_user_code_reads_are_recorded(tmp_path):
    folder_of_reader(tmp_path)
    with recording_files() as found:
        resolve("build.py:f", tmp_path)()
        (tmp_path / "unread.txt").read_text()  # read by somebody else
    names = {path.name for path in found if path.parent == tmp_path}
    assert names == {"build.py", "helper.py", "text.txt", "array.npy"}
    assert all(tmp_path in path.parents for path in found), "libraries and /proc are not the user's"


def test_what_was_read_before_counts_again_for_the_same_folder_only(tmp_path):
    one, other = folder_of_reader_in(tmp_path, "one"), folder_of_reader_in(tmp_path, "other")
    with recording_files():
        resolve("build.py:f", one)()
        resolve("build.py:f", other)()
    with recording_files() as found:
        resolve("build.py:f", one)  # imported already: nothing is opened now
    assert {path.name for path in found} == {"build.py", "helper.py", "text.txt", "array.npy"}
    assert all(one in path.parents for path in found)


def folder_of_reader_in(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder_of_reader(folder / name)


def test_an_environment_inside_the_folder_is_still_a_library(tmp_path, monkeypatch):
    """A project often holds its candidate.toml and its .venv side by side."""
    packages = tmp_path / ".venv" / "packages"
    packages.mkdir(parents=True)
    write(packages, "def read(path):\n    return open(path).read()", "reader_package.py")
    monkeypatch.setattr("verify.opened._library", lambda: (f"{packages}/",))
    monkeypatch.syspath_prepend(str(packages))
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("x")
    write(tmp_path, "import reader_package\ndef f(path): return reader_package.read(path)")
    function = resolve("build.py:f", tmp_path)
    with recording_files() as found:
        function(str(tmp_path / "a.txt"))
        sys.modules["reader_package"].read(str(tmp_path / "b.txt"))  # nothing of the user's is under way
    assert {path.name for path in found} == {"a.txt"}
    with pytest.raises(UsageError, match=r"build\.py:2: FileNotFoundError"):
        function("absent")


def test_nothing_is_recorded_when_nobody_listens(tmp_path):
    folder_of_reader(tmp_path)
    with recording_files() as found:
        pass
    resolve("build.py:f", tmp_path)()
    assert not found


def test_the_import_path_holds_each_folder_once(tmp_path):
    write(tmp_path, "def f(): pass")
    for _ in range(3):
        resolve("build.py:f", tmp_path)
    assert sys.path.count(str(tmp_path)) == 1


def test_folders_that_user_code_lists_are_seen_and_those_of_libraries_are_not(tmp_path):
    from verify.opened import recording_files

    (tmp_path / "listed").mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mine.py").write_text(
        "import os, pathlib, tempfile, numpy\n"
        f"def f():\n    list(pathlib.Path({str(tmp_path / 'listed')!r}).glob('*'))\n"
        "    with tempfile.TemporaryDirectory():\n        pass\n"
    )
    with recording_files() as opened:
        resolve("mine.py:f", tmp_path / "code")()
    assert {path for path in opened if path.is_dir()} == {tmp_path / "listed"}
