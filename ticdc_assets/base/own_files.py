"""The package's own files, wherever it is imported from: a folder, or a zip that Spark ships.

A digest is the same for the same texts, whether they lie in a folder or in a zip on a worker. Files
that Python generates (`__pycache__`, `*.pyc`) do not count. The documentation is not in the
package, so messages name a page of it by its URL (`documented`).
"""

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from importlib.resources import files
from importlib.resources.abc import Traversable

PACKAGE = __name__.partition(".")[0]


def own_files(
    suffix: str | tuple[str, ...] = "", package: str = PACKAGE
) -> Iterator[tuple[str, Traversable]]:
    """Yield the files with such endings, by their paths below the package, in order."""
    yield from _below(files(package), "", suffix)


@cache
def own_digest(suffix: str | tuple[str, ...] = "") -> str:
    """Return 16 hexadecimal digits of a digest of the texts and names of these files."""
    return digest_of((name, file.read_bytes()) for name, file in own_files(suffix))


@cache
def _documentation() -> str:
    """Return the URL of the documentation in the package's metadata, "" if it has none."""
    try:
        urls = metadata(PACKAGE.replace("_", "-")).get_all("Project-URL") or []
    except PackageNotFoundError:  # in a zip that Spark ships
        return ""
    parts = (str(item).partition(", ") for item in urls)
    return next((url for label, _, url in parts if label.lower() == "documentation"), "")


def documented(page: str, section: str = "", *, site: str | None = None) -> str:
    """Return where the documentation says more: a URL, or the page's name if it has no address.

    The page and the section are as in addresses; `site` is that in the package's metadata if None.
    """
    site = _documentation() if site is None else site
    if site:
        return f"{site.rstrip('/')}/{page}/{f'#{section}' if section else ''}"
    within = f", section {section}," if section else ""
    return f"the page `{page}`{within} of the documentation"


def digest_of(contents: Iterable[tuple[str, bytes]]) -> str:
    """Return the digits for files with these names and contents."""
    digest = hashlib.sha256()
    for name, content in contents:
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _below(
    folder: Traversable, place: str, suffix: str | tuple[str, ...]
) -> Iterator[tuple[str, Traversable]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            if item.name != "__pycache__":
                yield from _below(item, f"{place}{item.name}/", suffix)
        elif item.name.endswith(suffix) and not item.name.endswith(".pyc"):
            yield f"{place}{item.name}", item
