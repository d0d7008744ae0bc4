"""The site: the Markdown pages of this folder, the scripts of examples/, and the docstrings. ``make
docs`` builds it.
"""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pybtex.plugin
from docutils import nodes
from latex2mathml.converter import convert
from pybtex.style.formatting.unsrt import Style
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx

import ksos

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import module_pages  # noqa: E402 - beside this file
import static_explorer  # noqa: E402

module_pages.write(HERE / "reference" / "generated")

project = "ksos"
author = "The ksos developers"
copyright = f"2026, {author}"
version = release = ksos.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
]
extensions += ["sphinx_gallery.gen_gallery", "sphinx_copybutton", "sphinxcontrib.bibtex"]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]

html_theme = "pydata_sphinx_theme"
html_title = f"ksos {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {
    page: [] for page in ("index", "install", "quickstart", "how-do-i", "benchmarks")
}  # they have no pages below them
html_theme_options = {
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "show_prev_next": True,
}
html_show_sourcelink = False
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_typehints = "none"  # the sections of the docstrings say what comes and goes, in words
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": ["../examples/how_to", "../examples/gallery"],
    "gallery_dirs": ["how-to", "gallery"],
    "filename_pattern": r"\.py$",  # every script is run, whatever its name
    "abort_on_example_error": True,
    "plot_gallery": True,
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "remove_config_comments": True,
    "doc_module": ("ksos",),
    "reference_url": {"ksos": None},
    "backreferences_dir": None,
    "within_subsection_order": "FileNameSortKey",
}


def reachable(inventories: dict[str, str]) -> dict[str, tuple[str, None]]:
    """The sites that answer now: links to other projects are welcome, but the build never depends
    on a network.
    """
    found = {}
    for name, address in inventories.items():
        try:
            urllib.request.urlopen(f"{address}objects.inv", timeout=3).close()
        except (urllib.error.URLError, OSError):
            print(f"no links to {name}: {address} does not answer", file=sys.stderr)
        else:
            found[name] = (address, None)
    return found


intersphinx_mapping = reachable(
    {
        "python": "https://docs.python.org/3/",
        "numpy": "https://numpy.org/doc/stable/",
        "scipy": "https://docs.scipy.org/doc/scipy/",
        "sklearn": "https://scikit-learn.org/stable/",
    }
)


class Keys(BaseLabelStyle):
    """A source is cited by its key, in docstrings and in the list alike."""

    def format_labels(self, entries: Iterable[Any]) -> Iterable[str]:
        return (entry.key for entry in entries)


class ByKey(Style):
    """The plain list of pybtex, with the keys as labels."""

    default_label_style = Keys
    default_sorting_style = "author_year_title"


pybtex.plugin.register_plugin("pybtex.style.formatting", "by_key", ByKey)
bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "by_key"


def write_math(display: str) -> Any:
    """Formulas as MathML, which browsers draw themselves: no script, no font, no network."""

    def visit(self: Any, node: nodes.Element) -> None:
        tag = "div" if display == "block" else "span"
        formula = node.astext().replace(
            r"\Big\|", "\\Big‖"
        )  # the converter knows the name only where it is small
        self.body.append(f'<{tag} class="formula">{convert(formula, display=display)}</{tag}>')
        raise nodes.SkipNode

    return visit


# Links of the pages lead to files of the repository; in the site those files are pages.
PAGES_OF_FILES = [
    (r"\]\(\.\./(CONTRIBUTING|CHANGELOG)\.md", lambda found: f"]({found[1].lower()}.md"),
    (r"\]\(\.\./examples/how_to/(\w+)\.py\)", lambda found: f"](how-to/{found[1]}.rst)"),
    # no page of Sphinx: see add_the_explorer
    (
        r"\[([^]]+)\]\(\.\./src/ksos/explorer/static/index\.html\)",
        lambda found: f'<a href="explorer/index.html">{found[1]}</a>',
    ),
    (r"\]\(\.\./examples/gallery/(\w+)\.py\)", lambda found: f"](gallery/{found[1]}.rst)"),
]


def lead_to_pages(app: Sphinx, name: str, text: list[str]) -> None:
    """Turn links to files of the repository into links to their pages."""
    for pattern, replacement in PAGES_OF_FILES:
        text[0] = re.sub(pattern, replacement, text[0])


def give_examples_a_section(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Examples and remarks after the list of parameters get the headings without which numpydoc
    takes them for parameters.
    """
    out: list[str] = []
    section = ""
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        heading = re.fullmatch(r"-{3,}", after) is not None
        if heading:
            section = line
        elif (
            section
            and not before
            and line
            and not line.startswith((" ", ".."))
            and section != "Examples"
        ):
            wanted = "Examples" if line.startswith(">>>") else "Notes"
            if section != wanted:
                out += [wanted, "-" * len(wanted)]
                section = wanted
        out.append(line)
    lines[:] = out


def skip_the_inherited(
    app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn's base classes bring along: its own site documents it."""
    return True if str(getattr(member, "__module__", "")).startswith("sklearn.") else None


def add_the_explorer(app: Sphinx, error: Exception | None) -> None:
    """Write the page of ``ksos explore``, with fits made beforehand, beside the pages of the site."""
    if error is None and app.builder.format == "html":
        static_explorer.build(Path(app.outdir) / "explorer", HERE.parent / "build" / "fits")


def setup(app: Sphinx) -> None:
    """What Sphinx calls first."""
    app.connect("build-finished", add_the_explorer)
    app.connect("autodoc-skip-member", skip_the_inherited)
    app.connect(
        "autodoc-process-docstring", give_examples_a_section, priority=100
    )  # before numpydoc
    app.connect("source-read", lead_to_pages)
    app.add_html_math_renderer("mathml", (write_math("inline"), None), (write_math("block"), None))
