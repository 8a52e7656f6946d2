"""The page: a report as one HTML file that needs nothing else, drawn in the browser by Bokeh."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memsched.base.errors import OutputError
from memsched.base.shown import LONGEST_TEXT
from memsched.report.page_data import as_script, page_data
from memsched.report.page_words import page_words
from memsched.report.text import shortened
from memsched.report.values.optimize import OptimizeReport

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["check_page", "fill_page", "render_page"]

_ASSETS = Path(__file__).with_name("assets")
_THEME = "page_theme.js"
_SCRIPTS = (
    *("page_model.js", "page_plots.js", "page_graph.js", "page_inspector.js"),
    *("page_save.js", "page_frontier.js", "page_main.js"),
)
_BOKEH: Final = ("bokeh", "bokeh-api")
_NEEDED = ("bokeh", "jinja2")
_BEFORE_UNITS: Final = re.compile(r"(?<=\d) (?=(?:%|[KMG]?B)(?!\w))")


def check_page() -> None:
    """Check that what pages are made with is installed.

    Raises:
        OutputError: It is not.
    """
    for name in _NEEDED:
        if util.find_spec(name) is None:
            raise OutputError(
                f"the page needs {name}, which is not installed",
                code="not-installed",
                action=f"pip install {' '.join(_NEEDED)}",
            )


def render_page(report: OptimizeReport) -> str:
    """Return the page of a report, as `parse_report` gives it: the same text for the same report and version of Bokeh.

    Nothing of the report can become markup or script: all of it goes through escaping, and the page's policy permits
    the scripts in it by their hashes and nothing else, no request to anywhere included.

    Raises:
        OutputError: Bokeh or Jinja is not installed.
    """
    check_page()
    data = page_data(report)
    theme, scripts = _scripts()
    return _template().render(
        report=report,
        page=page_words(report, data),
        policy=_Verbatim(_policy((theme, *scripts))),
        css=_Verbatim(_asset("page.css")),
        theme=_Verbatim(theme),
        scripts=[_Verbatim(script) for script in scripts],
        data=_Verbatim(as_script(data.values)),
    )


def fill_page(template: str, scripts: tuple[str, ...], data: str, **values: Any) -> str:
    """Return another page of ours, of a template that stands beside this one's, as safe as `render_page` makes it.

    Args:
        template: Name of the file.
        scripts: Names of the scripts that follow Bokeh's.
        data: JSON that the scripts read, as `as_script` gives it.
        values: What the template shows; all of it is escaped.

    Raises:
        OutputError: Bokeh or Jinja is not installed.
    """
    check_page()
    texts = [_script(text) for text in (*_library(), *map(_asset, scripts))]
    return _template(template).render(
        policy=_Verbatim(_policy(tuple(texts))),
        css=_Verbatim(_asset("page.css")),
        scripts=[_Verbatim(text) for text in texts],
        data=_Verbatim(data),
        **values,
    )


@cache
def _scripts() -> tuple[str, tuple[str, ...]]:
    """Return the script that chooses the colours, and the others: the same in every page."""
    texts = *_library(), "".join(("(() => {\n", *map(_asset, _SCRIPTS), "})();\n"))
    return _script(_asset(_THEME)), tuple(map(_script, texts))


@cache
def _template(name: str = "page.html") -> Template:
    """Return a page's template, which takes longer to compile than to fill."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        loader=jinja2.FileSystemLoader(_ASSETS),
    )
    environment.filters["unbroken"] = _unbroken
    return environment.get_template(name)


class _Verbatim(str):
    """Text of our own that goes into the page as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def _shown(value: Any) -> Any:
    """Return a value as the template shows it: texts that end, without what could hide or reorder what is read."""
    return shortened(value, LONGEST_TEXT) if type(value) is str else value


class _Unbroken(str):
    """Text that ends where it should, and is still to be escaped."""

    __slots__ = ()


def _unbroken(text: str) -> _Unbroken:
    """Return a text as the template shows it, in which no line ends between a figure and its unit."""
    return _Unbroken(_BEFORE_UNITS.sub("\N{NO-BREAK SPACE}", shortened(text, LONGEST_TEXT)))


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _library() -> list[str]:
    """Return Bokeh's scripts, as they come with its package."""
    from bokeh.resources import Resources

    return Resources(mode="inline", components=[*_BOKEH], minified=True).js_raw[: len(_BOKEH)]


def _script(text: str) -> str:
    """Return a script that cannot end early, and that does not ask for a map of its source."""
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL")]
    return "\n".join(lines).replace("</script", "<\\/script").replace("<!--", "<\\!--")


@cache
def _policy(scripts: tuple[str, ...]) -> str:
    """Return a Content-Security-Policy under which these scripts run, and nothing is ever asked for."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    rules = (
        "default-src 'none'",
        f"script-src {allowed}",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "font-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)
