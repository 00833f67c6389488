"""Follows every link of the built book that stays within it, to the page and to the heading.

    links.py FOLDER
"""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append((self.getpos()[0], value))


def main(folder):
    root = pathlib.Path(folder).resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.html"))}
    followed, broken = 0, []
    for path, page in pages.items():
        # The page for what is not found has links from the root, and the one for printing holds all the others.
        if path.name in ("404.html", "print.html", "toc.html"):
            continue
        for line, link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            followed += 1
            if not target.is_file():
                broken.append(f"{path.relative_to(root)}:{line}: {link}: there is no such file")
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].ids:
                broken.append(f"{path.relative_to(root)}:{line}: {link}: there is no such heading")
    if broken:
        sys.exit("error: the book has links that lead nowhere:\n  " + "\n  ".join(broken))
    if followed < 100:
        sys.exit(f"error: only {followed} links in {root}; is that the book?")
    print(f"{len(pages)} pages, {followed} links, each leads somewhere")


if __name__ == "__main__":
    main(sys.argv[1])
