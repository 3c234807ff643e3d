"""How a Document is put before a reader: a terminal's lines, Markdown, one HTML file."""
