"""Reports of an evaluation: chapters, charts, an HTML page and a Markdown page."""
