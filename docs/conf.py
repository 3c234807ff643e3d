"""Sphinx configuration of the documentation site: ``make docs``.

The source directory is the repository, so that a page can link to ARCHITECTURE.md or to a README of
another folder, in the site as in a repository view. Pages are plain Markdown without directives.
"""

from __future__ import annotations

import posixpath
import re

from sphinx.application import Sphinx

project = "Warmwatch"
html_title = "Warmwatch"
extensions = ["myst_parser"]
root_doc = "docs/README"
include_patterns = [
    "*.md",
    "docs/**.md",
    "benchmarks/README.md",
    "dashboards/README.md",
    "docker/README.md",
]
exclude_patterns = [".*", "agent", "build", "dist", "monitor", "tests"]

# Pygments' lexers do not know every valid block, such as PromQL with the name of a recording rule.
suppress_warnings = ["misc.highlighting_failure"]
myst_heading_anchors = 4  # the anchors that a repository view gives headings
html_theme = "furo"
pygments_dark_style = "a11y-high-contrast-dark"  # the theme's own underlines modules like links
html_static_path = ["static"]
html_css_files = ["style.css"]
html_extra_path = ["site"]  # index.html, which leads to the first page
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}


def add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Make the navigation from the tables of an index page: a group for each heading of level 2.

    Sphinx warns about a page that no index lists, and the build is strict.
    """
    if posixpath.basename(page) != "README" or not page.startswith("docs/"):
        return
    for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:]:
        links = re.findall(r"^\| \[.+?\]\(([^)#]+)\.md\)", section, re.MULTILINE)
        folder = posixpath.dirname(page)
        pages = [f"/{posixpath.normpath(posixpath.join(folder, link))}" for link in links]
        caption = section.splitlines()[0]
        source[0] += "\n".join(
            ["\n\n```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```\n"]
        )


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)
