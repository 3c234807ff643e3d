"""The documentation site: the build is strict, complete and works offline."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BUILD = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going"]


def build(source: Path, site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*BUILD, *options, "-c", str(source / "docs"), str(source), str(site)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages, without the theme: half of its build is a navigation for each page."""
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder, "-D", "html_theme=basic")
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.first
def test_the_site_has_every_page_and_a_search(site: Path) -> None:
    pages = {
        path.relative_to(ROOT).with_suffix(".html")
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    }
    assert {page for page in pages if not (site / page).exists()} == set()
    assert "docs/README.html" in (site / "index.html").read_text()
    assert "thrash" in (site / "searchindex.js").read_text()


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    loads_nothing(site)


def loads_nothing(site: Path) -> None:
    """Of a site, no page and no style sheet names a file of another host that a browser loads."""
    loaded = [
        (page.name, address)
        for page in site.rglob("*.html")
        for address in re.findall(
            r"<(?:script|img|iframe)[^>]* src=\"(//[^\"]+|https?:[^\"]+)\""
            r"|<link[^>]* href=\"(//[^\"]+|https?:[^\"]+)\"",
            page.read_text(),
        )
    ]
    assert loaded == []
    styles = "".join(sheet.read_text() for sheet in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import) *[\"']?(?:https?:)?//", styles) == []


@pytest.mark.long
def test_the_theme_loads_nothing_and_dead_links_and_an_orphan_fail_the_build(
    tmp_path: Path,
) -> None:
    docs = tmp_path / "source" / "docs"
    docs.mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "conf.py", docs)
    for folder in ("site", "static"):
        shutil.copytree(ROOT / "docs" / folder, docs / folder)
    index = "# Index\n\n## Pages\n\n| page |\n|---|\n| [Second](second.md) |\n"
    (docs / "README.md").write_text(index)
    (docs / "second.md").write_text("# Second\n")
    assert build(docs.parent, tmp_path / "good").returncode == 0
    assert "furo.css" in (tmp_path / "good" / "docs" / "second.html").read_text()
    loads_nothing(tmp_path / "good")
    links = "[x](nowhere.md)\n\n[x](second.md#no-such-heading)"
    (docs / "second.md").write_text(f"# Second\n\n{links}\n")
    (docs / "orphan.md").write_text("# Orphan\n")
    built = build(docs.parent, tmp_path / "bad")
    assert built.returncode == 1
    for complaint in (
        "nowhere.md",
        "no-such-heading",
        "orphan.md: WARNING: document isn't included in any toctree",
    ):
        assert complaint in built.stderr
