"""Compiled loops are kept where nobody else can put something that would be run."""

import ast
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numba
import pytest
from numba.core import config

from ticdc_assets.base import compiled


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled._folder.cache_clear()
    yield tmp_path / "cache"
    compiled._folder.cache_clear()


def test_the_folder_is_this_users_alone_whatever_the_umask(home: Path) -> None:
    mask = os.umask(0)
    try:
        folder = made()
    finally:
        os.umask(mask)
    for level in (folder, folder.parent, folder.parent.parent, home):
        assert level.stat().st_mode & 0o777 == 0o700
    assert made() == folder


def made() -> Path:
    """Return the folder as the next process finds it."""
    compiled._folder.cache_clear()
    folder = compiled._folder()
    assert folder is not None
    return folder


def theirs(path: Path) -> None:
    """Give a file or folder to another user; only root can."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12345, 12345)


def linked(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


def file_in(folder: Path) -> Path:
    path = folder / "sub" / "loops.nbi"
    path.parent.mkdir()
    path.write_bytes(b"a pickle")
    return path


DOUBTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "group may write": (lambda folder: folder.chmod(0o770), "others may write"),
    "all may write": (lambda folder: folder.chmod(0o707), "others may write"),
    "another user's": (theirs, "does not belong to this user"),
    "a file in it is another user's": (lambda folder: theirs(file_in(folder)), "does not belong"),
    "a link": (linked, "does not belong to this user"),
    "the one above is another user's": (lambda folder: theirs(folder.parent), "to another user"),
    "the way to it is open to all": (
        lambda folder: folder.parent.parent.parent.chmod(0o777),
        "everybody may write",
    ),
    "a file in its place": (lambda folder: (folder.rmdir(), folder.touch()), "File exists"),
}


@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.thorough
def test_where_others_may_have_written_nothing_is_kept_nor_run(
    doubt: str, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change, reason = DOUBTS[doubt]
    change(made())
    compiled._folder.cache_clear()
    with caplog.at_level(logging.WARNING):
        first, second = (compiled.compiled(function) for function in (_one_more, _two_more))
    assert (first(1), second(1)) == (2, 3)
    assert [reason in record.getMessage() for record in caplog.records] == [True]
    assert not any(path.suffix == ".nbc" for path in home.rglob("*"))


def test_folders_that_an_older_version_opened_to_the_group_are_closed(home: Path) -> None:
    folder = made()
    folder.parent.chmod(0o775)
    assert made() == folder
    assert folder.parent.stat().st_mode & 0o777 == 0o755


def test_a_home_that_cannot_be_written_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    compiled._folder.cache_clear()
    try:
        for _ in range(3):
            assert compiled.compiled(_one_more)(1) == 2
    finally:
        compiled._folder.cache_clear()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def _one_more(number: int) -> int:
    return number + 1


def _two_more(number: int) -> int:
    return number + 2


def test_numbas_setting_is_nobody_elses_meanwhile(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that decorate at once would leave the folder of one as everybody's."""
    original, inside, most = numba.njit, [0], [0]
    seen: list[str] = []

    def slow(*args: object, **kwargs: object) -> object:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        seen.append(config.CACHE_LOCATOR_CLASSES)
        threading.Event().wait(0.05)
        inside[0] -= 1
        return original(*args, **kwargs)

    monkeypatch.setattr(numba, "njit", slow)
    was = config.CACHE_LOCATOR_CLASSES
    threads = [threading.Thread(target=compiled.compiled, args=(_one_more,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert set(seen) == {"ticdc_assets.base.compiled.KeptPlace"}
    assert was == config.CACHE_LOCATOR_CLASSES


def test_what_is_kept_is_used_again(home: Path) -> None:
    assert compiled.compiled(_one_more)(1) == 2
    kept = list(home.rglob("*.nbc"))
    assert kept
    again = compiled.compiled(_one_more)
    assert again(1) == 2
    assert sum(again.stats.cache_hits.values()) == 1  # pyright: ignore[reportFunctionMemberAccess]


MOST_PARAMETERS = 8


def compiled_functions(path: Path) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a module that are compiled."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and {"compiled", "inlined"} & {
            item.id for item in node.decorator_list if isinstance(item, ast.Name)
        }:
            yield node


def test_arrays_that_belong_together_are_one_parameter(root: Path) -> None:
    package = root / "ticdc_assets"
    counted = {
        (str(path.relative_to(package)), function.name): len(function.args.args)
        for path in package.rglob("*_loops.py")
        for function in compiled_functions(path)
    }
    assert len(counted) > 50
    many = {place for place, count in counted.items() if count > MOST_PARAMETERS}
    assert not many, sorted(many)


def test_loops_take_numbers_only_from_what_their_digest_covers(root: Path) -> None:
    """Else compiled code would be used on when such a number changes."""
    package = root / "ticdc_assets"
    others = {
        (str(path.relative_to(package)), node.module)
        for ending in ("_loops.py", "codes.py")
        for path in package.rglob(f"*{ending}")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("ticdc_assets.")
        and not f"{node.module}.py".endswith(compiled._LOOPS)
    }
    assert not others, sorted(others)
