"""How Sphinx builds these pages: Markdown, a plain theme, and nothing from other hosts."""

from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

project = "Kafka group coordinator"
extensions = ["myst_parser"]
exclude_patterns: list[str] = []

myst_heading_anchors = 4  # as GitHub makes them: the pages are read there as well

html_theme = "alabaster"
html_theme_options = {"description": "One Spark Structured Streaming query", "page_width": "1200px"}
html_show_copyright = False
html_copy_source = False

lexers["mermaid"] = TextLexer()  # a diagram is shown as text, since a script from another host would draw it
