"""A page as its reader meets it."""

from html.parser import HTMLParser


def text_of(page):
    """The visible text of an HTML page, each run of white space as one blank."""
    parser = _Text()
    parser.feed(page)
    return " ".join("".join(parser.words).split())


class _Text(HTMLParser):
    def __init__(self):
        super().__init__()
        self.words, self.hidden = [], 0

    def handle_starttag(self, tag, attributes):
        self.hidden += tag in ("style", "script")
        self.words.append(" ")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("style", "script")
        self.words.append(" ")

    def handle_data(self, data):
        if not self.hidden:
            self.words.append(data)
