"""Lets the pages of docs/ link to files of the repository outside it: they become part of the built site.

On a code host such a link leads to the file itself; in the site to a copy below ``repository/``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)")
_COPIES = "repository/"
_LISTING = "index.md"
"""Of a folder that a page links to."""
_ALWAYS = ("SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md")
"""Pages that the navigation names."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add all files outside the documentation that a page links to."""
    root, docs = Path(config.docs_dir).parent, Path(config.docs_dir).name
    wanted = set(_ALWAYS)
    for file in files.documentation_pages():
        targets = (_from_root(f"{docs}/{file.src_uri}", link) for link in _LINK.findall(file.content_string))
        wanted.update(target for target in targets if not target.startswith((f"{docs}/", "../")))
    for path in sorted(wanted):
        if (root / path).is_dir():
            names = sorted(one.name for one in (root / path).iterdir() if one.is_file())
            listing = f"# {path}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)
            uri, kind = f"{_COPIES}{path}/{_LISTING}", InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, uri, content=listing, inclusion=kind))
            wanted = {*wanted, *(f"{path}/{name}" for name in names)}
    for path in sorted(wanted):
        if (root / path).is_file():
            files.append(File.generated(config, _COPIES + path, content=(root / path).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links between the documentation and the rest of the repository at the copies."""
    docs, here = Path(config.docs_dir).name, page.file.src_uri
    place = here.removeprefix(_COPIES) if here.startswith(_COPIES) else f"{docs}/{here}"

    def moved(found: re.Match[str]) -> str:
        target = _from_root(place, found[1])
        inside = target.removeprefix(f"{docs}/") if target.startswith(f"{docs}/") else _COPIES + target
        if files.get_file_from_path(f"{inside}/{_LISTING}") is not None:
            inside = f"{inside}/{_LISTING}"
        if files.get_file_from_path(inside) is None:
            return found[1]
        return posixpath.relpath(inside, posixpath.dirname(here) or ".")

    return _LINK.sub(moved, markdown)


def _from_root(place: str, link: str) -> str:
    """Return where a link leads that stands in the file ``place``; both from the repository's root."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
