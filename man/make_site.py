#!/usr/bin/env python3
"""The pages and documents of the tree as a small site: make html.

    man/make_site.py FOLDER

Pages are rendered by mandoc, documents (README.md and what links lead to from there) by cmark-gfm,
or, where that is missing, shown as they are. Files stand in FOLDER as in the tree, with .html
behind the name of a page and in place of .md; other files that a document links to are copied.
index.html lists the programs in the groups of src/cli/programs.h. There are no scripts.
"""

import argparse
import html
import os
import re
import shutil
import subprocess
import sys

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OTHER_GROUPS = (("Start here", ("kvpipe.7", "kvpipe.1")),
                ("Formats", ("kv-snapshot.5", "kv-adapter.5", "kv-head.5")),
                ("Library", ("libkvfile.3",)))

STYLE = """\
:root { color-scheme: light dark; --page: #fff; --ink: #1d2129; --quiet: #5d6675; --line: #dde1e7;
  --box: #f4f6f8; --link: #0b63a8; --name: #7a3e00; }
@media (prefers-color-scheme: dark) {
  :root { --page: #12161f; --ink: #e4e6ea; --quiet: #9aa4b5; --line: #2d3544; --box: #1b212d;
    --link: #79b8f2; --name: #f0b36a; } }
* { box-sizing: border-box; }
body { background: var(--page); color: var(--ink); margin: 0 auto; max-width: 78em;
  padding: 0 1.5em 4em; font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
header { border-bottom: 1px solid var(--line); padding: 1em 0; margin-bottom: 1.5em;
  display: flex; flex-wrap: wrap; gap: 0.3em 1.5em; }
header b { font-size: 1.1em; }
.beside { display: grid; grid-template-columns: 14em minmax(0, 1fr); gap: 2.5em; }
.contents { position: sticky; top: 1em; align-self: start; font-size: 0.88em; max-height: 95vh;
  overflow-y: auto; }
.contents ul { list-style: none; margin: 0; padding: 0; }
.contents li { margin: 0.25em 0; }
.contents .below { padding-left: 1em; }
main { max-width: 56em; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.25; margin: 1.6em 0 0.5em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; } h3 { font-size: 1.05em; }
main > :first-child, main > section:first-child h1 { margin-top: 0; }
h1.Sh { font-size: 1.15em; text-transform: capitalize; }
h2.Ss { font-size: 1.05em; }
.permalink { color: inherit; }
code, pre, .Li { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace;
  font-size: 0.88em; }
pre { background: var(--box); border-radius: 6px; padding: 0.8em 1em; overflow-x: auto;
  line-height: 1.45; }
pre code { font-size: 1em; }
.Bd-indent { margin: 1em 0; }
code.Nm, code.Fl, code.Cm, code.Ic { font-weight: 600; }
code.Fl, code.Cm { color: var(--name); }
code.Fl, table.Nm td:first-child { white-space: nowrap; }
.Nd, .Op { display: inline; }
dt { margin-top: 0.8em; }
dd { margin-left: 2em; }
dl.Bl-compact dt { margin-top: 0.2em; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1em 0; }
th, td { text-align: left; vertical-align: top; padding: 0.3em 0.9em 0.3em 0; }
main table:not(.Nm) td, main table:not(.Nm) th { border-bottom: 1px solid var(--line); }
table.Nm { margin: 0.3em 0; }
table.Nm td { padding-right: 0.6em; }
img { max-width: 100%; height: auto; }
.list td:first-child { white-space: nowrap; width: 14em; }
.list { display: table; width: 100%; }
footer { color: var(--quiet); font-size: 0.85em; margin-top: 4em; }
@media (max-width: 52em) { .beside { display: block; } .contents { display: none; } }
"""


def stop(message):
    print(f"make_site.py: {message}", file=sys.stderr)
    sys.exit(1)


def read(path):
    with open(os.path.join(TREE, path), encoding="utf-8") as file:
        return file.read()


def slug(title):
    """The anchor that GitHub gives a heading."""
    words = html.unescape(re.sub(r"<[^>]*>", "", title)).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.markdown = shutil.which("cmark-gfm")
        self.documents, self.files, self.titles = ["README.md"], set(), {}
        self.pages = sorted(name for name in os.listdir(os.path.join(TREE, "man"))
                            if re.fullmatch(r"[a-z0-9-]+\.[1-9]", name))

    def write(self, path, text):
        whole = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, "w", encoding="utf-8") as file:
            file.write(text)

    def frame(self, path, title, body, contents=""):
        """The whole file around what is shown."""
        up = "../" * path.count("/")
        links = (("index.html", "<b>kvpipe</b>"), ("man/kvpipe.7.html", "tutorial"),
                 ("README.html", "README"), ("formats/kv-snapshot.html", "format"))
        head = "".join(f'<a href="{up}{where}">{words}</a>' for where, words in links)
        beside = f'<div class="beside">{contents}<main>{body}</main></div>' if contents else \
            f"<main>{body}</main>"
        self.write(path, '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
                   '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
                   f'<title>{html.escape(title)}</title>\n'
                   f'<link rel="stylesheet" href="{up}style.css"></head>\n'
                   f"<body><header>{head}</header>\n{beside}\n</body></html>\n")

    # ---- manual pages ----

    def render_page(self, name):
        mandoc = subprocess.run(
            ["mandoc", "-T", "html", "-O", "fragment,man=%N.%S.html", f"man/{name}"],
            cwd=TREE, stdout=subprocess.PIPE, check=True)
        text = mandoc.stdout.decode("utf-8")
        text = re.sub(r'<table class="(head|foot)">.*?</table>\n?', "", text, flags=re.S)
        title = "{}({})".format(*name.rsplit(".", 1))
        items = re.findall(r'<h([12]) class="S[hs]" id="([^"]*)">(.*?)</h[12]>', text, re.S)
        self.frame(f"man/{name}.html", title, f"<h1>{title}</h1>{text}", contents_of(items))

    def about(self, name):
        """What NAME says behind the dash."""
        return re.search(r"^\.Nd (.*)$", read(f"man/{name}"), re.M).group(1).strip('"')

    # ---- documents ----

    def render_documents(self):
        for path in self.documents:         # grows
            text = read(path)
            title = re.search(r"^# (.*)$", text, re.M)
            self.titles[path] = title.group(1) if title else path
            if self.markdown:
                body = subprocess.run([self.markdown, "-e", "table", "-e", "autolink"], check=True,
                                      input=text.encode("utf-8"), stdout=subprocess.PIPE).stdout
                body, items = with_anchors(body.decode("utf-8"))
            else:
                body, items = as_it_is(text), []
            body = re.sub(r'\b(href|src)="([^"]*)"',
                          lambda link, path=path: self.link(path, *link.groups()), body)
            self.frame(target(path), self.titles[path], body, contents_of(items))

    def link(self, path, kind, where):
        """A link of a document as it is in the site; what it leads to comes into the site."""
        if re.match(r"[a-z]+:|#", where):
            return f'{kind}="{where}"'
        file, _, anchor = html.unescape(where).partition("#")
        at = os.path.normpath(os.path.join(os.path.dirname(path), file))
        whole = os.path.join(TREE, at)
        if at.startswith("..") or not os.path.exists(whole):
            stop(f"{path}: there is no {file}")
        if os.path.isdir(whole):
            at = os.path.join(at, "README.md")
            file = os.path.join(file, "README.md")
            if not os.path.exists(os.path.join(TREE, at)):
                return ""       # a folder that has no page: words without a link
        if at.endswith(".md"):
            if at not in self.documents:
                self.documents.append(at)
        elif os.path.basename(at) not in self.pages:
            self.files.add(at)
        behind = f"#{anchor}" if anchor else ""
        return f'{kind}="{html.escape(target(file) + behind)}"'

    # ---- the list of everything ----

    def index(self):
        introduction = re.search(r"^# .*?\n\n(.*?)\n\n", read("README.md"), re.S).group(1)
        body = [f"<h1>kvpipe</h1><p>{html.escape(introduction)}</p>",
                '<p><img src="examples/kept.svg" alt="which rows of the cache three methods keep">'
                "</p>"]
        listed = set()
        for title, names in (OTHER_GROUPS[0], *program_groups(), *OTHER_GROUPS[1:]):
            lines = [(f"man/{n}.html", "{}({})".format(*n.rsplit(".", 1)), self.about(n))
                     for n in names]
            listed.update(names)
            body.append(table(title, lines))
        if left := set(self.pages) - listed:
            stop(f"index.html: in no group: {' '.join(sorted(left))}")
        body.append(table("Documents", [(target(path), path, self.titles[path])
                                        for path in self.documents if self.titles[path] != path]))
        self.frame("index.html", "kvpipe", "\n".join(body))

    def make(self):
        self.write("style.css", STYLE)
        for name in self.pages:
            self.render_page(name)
        self.render_documents()
        self.files.add("examples/kept.svg")
        for path in sorted(self.files):
            whole = os.path.join(self.folder, path)
            os.makedirs(os.path.dirname(whole), exist_ok=True)
            shutil.copyfile(os.path.join(TREE, path), whole)
        self.index()


def target(path):
    """The name of a file of the tree in the site."""
    if path.endswith(".md"):
        return path[:-3] + ".html"
    return path + ".html" if re.search(r"(^|/)man/[a-z0-9-]+\.[1-9]$", path) else path


def program_groups():
    """(title, names of pages) from the list of programs."""
    groups = []
    text = re.sub(r"/\*.*?\*/", "", read("src/cli/programs.h"), flags=re.S)
    for kind, name in re.findall(r'^(GROUP|PROGRAM)\("([^"]*)"', text, re.M):
        if kind == "GROUP":
            groups.append((name, []))
        else:
            groups[-1][1].append(f"{name}.1")
    return groups


def table(title, lines):
    rows = "".join(f'<tr><td><a href="{where}">{html.escape(name)}</a></td>'
                   f"<td>{html.escape(about)}</td></tr>\n" for where, name, about in lines)
    return f'<h2>{html.escape(title)}</h2>\n<table class="list">{rows}</table>'


def contents_of(items):
    """At the side: headings of two levels. items: (level, anchor, title)"""
    if len(items) < 4:
        return ""
    top, text = min(level for level, _, _ in items), ""
    for level, anchor, title in items:
        words = re.sub(r"</?a\b[^>]*>", "", title)
        if words.isupper():
            words = words.capitalize()
        kind = ' class="below"' if level > top else ""
        text += f'<li{kind}><a href="#{anchor}">{words}</a></li>'
    return f'<nav class="contents"><ul>{text}</ul></nav>'


def with_anchors(body):
    """Headings with the anchors that GitHub gives them, and the list of those below the title."""
    seen, items = {}, []

    def heading(match):
        level, title = match.groups()
        anchor = slug(title)
        n = seen[anchor] = seen.get(anchor, -1) + 1
        anchor += f"-{n}" if n else ""
        if level in "23":
            items.append((level, anchor, title))
        return f'<h{level} id="{anchor}">{title}</h{level}>'
    return re.sub(r"<h([1-6])>(.*?)</h\1>", heading, body, flags=re.S), items


def as_it_is(text):
    """A document without a renderer: its text, with its links, and anchors where headings are."""
    seen, lines = set(), []
    for line in html.escape(text, quote=False).split("\n"):
        line = re.sub(r"\]\(([^)\s]+)\)", r'](<a href="\1">\1</a>)', line)
        if (title := re.match(r"#+ (.*)", line)) and (anchor := slug(title.group(1))) not in seen:
            seen.add(anchor)
            line = f'<b id="{anchor}">{line}</b>'
        lines.append(line)
    return "<pre>" + "\n".join(lines) + "</pre>"


def main():
    parser = argparse.ArgumentParser(description="the pages and documents as a small site")
    parser.add_argument("folder", metavar="FOLDER", help="is made anew")
    folder = parser.parse_args().folder
    if shutil.which("mandoc") is None:
        stop("there is no mandoc, which renders the pages: apt-get install mandoc")
    if os.path.exists(folder):
        if os.listdir(folder) and not os.path.exists(os.path.join(folder, "style.css")):
            stop(f"{folder}: there is something else in it")
        shutil.rmtree(folder)
    site = Site(folder)
    if site.markdown is None:
        print("make_site.py: there is no cmark-gfm (apt-get install cmark-gfm): "
              "documents are shown as text", file=sys.stderr)
    site.make()
    print(os.path.join(folder, "index.html"))


if __name__ == "__main__":
    main()
