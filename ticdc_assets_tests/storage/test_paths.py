"""A path in a store does as a path of this machine does: the same steps on both.

A store of objects is Arrow's own in memory here; on S3 the tests of the lake take these ways.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from pyarrow import fs

from ticdc_assets.storage import stores
from ticdc_assets.storage.paths import (
    AnyPath,
    RemotePath,
    at,
    below,
    copy,
    delta_options,
    files_below,
    located,
    move,
    names_in,
    remote_path,
    remove_tree,
    subtree,
    write_at_once,
)
from ticdc_assets.storage.stores import Storage


@pytest.fixture(params=["folder", "store", pytest.param("hdfs", marks=pytest.mark.hdfs)])
def root(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AnyPath]:
    if request.param == "folder":
        yield tmp_path / "lake"
        return
    if request.param == "hdfs":
        yield request.getfixturevalue("hdfs_lake").path
        return
    memory = fs._MockFileSystem()
    memory.create_dir("box")
    monkeypatch.setattr(stores, "_file_system", lambda *_: memory)
    yield remote_path("s3://box/lake", Storage(region="r"), {})


def write(path: AnyPath, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    make_folder(path.parent)
    path.write_text(text)


def make_folder(folder: AnyPath) -> None:
    # The store in memory has folders, which S3 has not.
    if isinstance(folder, RemotePath) and folder.store.scheme == "s3":
        folder.files.create_dir(folder.inside)


def texts(folder: AnyPath) -> dict[str, str]:
    return {str(item.below): item.path.read_text() for item in files_below(folder)}


def test_names(root: AnyPath) -> None:
    path = root / "a" / "b.c"
    assert (path.name, path.parent, path.parent.parent) == ("b.c", root / "a", root)
    assert path.with_name("d") == root / "a" / "d"
    assert root.joinpath("a", "b.c") == root / "a/b.c" == path
    assert below(path, root) == PurePosixPath("a/b.c")
    with pytest.raises(ValueError, match="is not"):
        below(root, path)
    assert at(str(path), root) == path
    assert root / str(path) == path
    assert sorted([root / "b", root / "a"]) == [root / "a", root / "b"]
    assert path.absolute().as_uri().endswith("/lake/a/b.c")


def test_reading_and_writing(root: AnyPath) -> None:
    path = root / "a" / "b"
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        path.stat()
    with pytest.raises(FileNotFoundError):
        path.read_bytes()
    with pytest.raises(FileNotFoundError):
        path.unlink()
    path.unlink(missing_ok=True)
    write(path, "one")
    assert (path.read_text(), path.stat().st_size) == ("one", 3)
    assert (path.exists(), path.is_file(), path.is_dir()) == (True, True, False)
    assert (path.parent.is_file(), path.parent.is_dir()) == (False, True)
    with path.open("rb") as file:
        file.seek(1)
        assert file.read(2) == b"ne"
    write_at_once(path, "two")
    assert texts(root) == {"a/b": "two"}
    copy(path, root / "a" / "c")
    path.unlink()
    assert texts(root) == {"a/c": "two"}


def test_listing(root: AnyPath) -> None:
    assert names_in(root) == []
    for name in ("a/x.json", "a/y.txt", "b/c/z.json"):
        write(root / name, name)
    assert sorted(names_in(root)) == ["a", "b"]
    assert {str(item.below): item.size for item in files_below(root)} == {
        "a/x.json": 8,
        "a/y.txt": 7,
        "b/c/z.json": 10,
    }
    remove_tree(root / "a")
    remove_tree(root / "a", quietly=True)
    assert sorted(texts(root)) == ["b/c/z.json"]


@pytest.mark.parametrize("quietly", [False, True])
def test_a_file_is_removed_as_a_tree_is(root: AnyPath, quietly: bool) -> None:
    for name in ("a/x", "a/y/z"):
        write(root / name, name)
    for _ in range(2):
        remove_tree(root / "a" / "x", quietly=quietly)
        assert sorted(texts(root)) == ["a/y/z"]


def test_of_a_link_only_the_link_is_removed(tmp_path: Path) -> None:
    write(tmp_path / "kept" / "x", "x")
    for name in ("kept", "kept/x", "nowhere"):
        link = tmp_path / "link"
        link.symlink_to(tmp_path / name)
        remove_tree(link)
        assert not link.is_symlink()
    assert texts(tmp_path) == {"kept/x": "x"}


def test_a_tree_is_moved(root: AnyPath) -> None:
    for name in ("a/_delta_log/00.json", "a/x", "a/b/y"):
        write(root / name, name)
    for folder in ("c/_delta_log", "c/b"):
        make_folder(root / folder)
    move(root / "a", root / "c")
    assert texts(root) == {
        "c/_delta_log/00.json": "a/_delta_log/00.json",
        "c/x": "a/x",
        "c/b/y": "a/b/y",
    }


def test_a_log_is_removed_first_and_oldest_first(
    root: AnyPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(root, Path) or root.store.has_folders:
        pytest.skip("a folder is renamed")
    for name in ("a/part", "a/_delta_log/01.json", "a/_delta_log/00.json"):
        write(root / name, name)
    root.files.create_dir((root / "c" / "_delta_log").inside)
    gone: list[str] = []
    monkeypatch.setattr(
        type(root), "unlink", lambda path, missing_ok: gone.append(str(below(path, root)))
    )
    move(root / "a", root / "c")
    assert gone == ["a/_delta_log/00.json", "a/_delta_log/01.json", "a/part"]
    assert len(texts(root / "c")) == 3


def test_what_libraries_are_told(root: AnyPath) -> None:
    write(root / "a", "one")
    where, files = located(root / "a")
    assert (files is None) == isinstance(root, Path)
    assert str(where).endswith("lake/a")
    assert (delta_options(root) is None) == isinstance(root, Path)
    with subtree(root).open_input_file("a") as file:
        assert file.read() == b"one"
