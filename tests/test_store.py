"""The cache and the run folders: complete or absent, one builder at a time, nothing left after an error."""

from __future__ import annotations

import json
import multiprocessing
import os
import time

import pytest

from verify.core import UsageError
from verify.store import Store, code_version, file_digest, key_of, link, publish


def filled(folder, text="x"):
    folder.mkdir(parents=True)
    (folder / "a").write_text(text)
    return folder


def test_keys_follow_the_content_and_not_the_order() -> None:
    assert key_of({"a": 1, "b": [1, 2]}) == key_of({"b": [1, 2], "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 2}) != key_of({"a": "2"})
    assert len(code_version()) == 64


def test_file_digest_is_sha256(tmp_path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")  # FIPS 180-2's own example
    assert file_digest(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_an_entry_is_found_only_when_it_is_complete(tmp_path) -> None:
    store = Store(tmp_path / "s")
    assert store.find("builds", "k") is None
    filled(tmp_path / "s" / "cache" / "builds" / "k")  # as a killed process would leave it
    assert store.find("builds", "k") is None
    kept = store.keep(filled(tmp_path / "new", "y"), "builds", "k", {"n": 1})
    assert store.find("builds", "k") == kept and (kept / "a").read_text() == "y"
    entry = json.loads((kept / "entry.json").read_text())
    assert entry == {"schema": "npu-verify/cache/1", "n": 1}
    assert not (tmp_path / "new").exists()


def test_a_work_folder_goes_away_also_after_an_error(tmp_path) -> None:
    store = Store(tmp_path)
    with store.work() as work:
        assert work.is_absolute() and work.is_dir()
    assert not work.exists()
    with pytest.raises(KeyboardInterrupt), store.work() as work:
        filled(work / "deep")
        raise KeyboardInterrupt
    assert not work.exists() and list((tmp_path / "tmp").iterdir()) == []


def test_an_unwritable_store_is_one_line(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written.*--cache"), Store(tmp_path / "file").work():
        pass


def _hold(root, started, seconds):
    with Store(root).lock("k"):
        started.set()
        time.sleep(seconds)


def test_a_lock_is_held_by_one_process_and_freed_by_its_death(tmp_path) -> None:
    context = multiprocessing.get_context("fork")
    started = context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, started, 60))
    holder.start()
    assert started.wait(10)
    waiter_started = context.Event()
    waiter = context.Process(target=_hold, args=(tmp_path, waiter_started, 0))
    waiter.start()
    assert not waiter_started.wait(0.3)
    holder.kill()
    assert waiter_started.wait(10)
    waiter.join(10)
    holder.join(10)


def test_publish_never_overwrites(tmp_path) -> None:
    target = tmp_path / "runs" / "name"
    publish(filled(tmp_path / "one", "1"), target)
    with pytest.raises(FileExistsError):
        publish(filled(tmp_path / "two", "2"), target)
    assert (target / "a").read_text() == "1" and [p.name for p in target.parent.iterdir()] == ["name"]


def test_link_shares_the_bytes_or_copies(tmp_path, monkeypatch) -> None:
    source = filled(tmp_path / "from") / "a"
    link(source, tmp_path / "to" / "a")
    assert os.path.samefile(source, tmp_path / "to" / "a")
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError()))
    link(source, tmp_path / "to" / "b")
    assert (tmp_path / "to" / "b").read_text() == "x" and not os.path.samefile(source, tmp_path / "to" / "b")
