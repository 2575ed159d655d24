"""Hooks of mkdocs: files outside of `docs` that are pages of the site too.

In: the files of `PAGES` as they are in the repository. Out: pages, and links between them and the
files below `docs`, which work in the repository and on the site.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "bench/figures.md": "figures.md",
    "LICENSE": "LICENSE.txt",
}

_LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")


def linked(text: str, source: str, page: str) -> str:
    """Return a page's text with links as the site has them.

    Args:
        text: Markdown of the file.
        source: path of the file in the repository, such as `docs/formats/README.md`.
        page: path of the page on the site, such as `formats/README.md`.
    """

    def link(match: "re.Match[str]") -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        target = PAGES.get(target, target.removeprefix("docs/"))
        path = posixpath.relpath(target, posixpath.dirname(page) or ".")
        return f"{match[1]}{path}{match[3] or ''}{match[4]}"

    return _LINK.sub(link, text)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are files outside of `docs`."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=linked(text, source, page)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page that is a file below `docs`."""
    path = page.file.src_uri
    return markdown if path in PAGES.values() else linked(markdown, f"docs/{path}", path)
