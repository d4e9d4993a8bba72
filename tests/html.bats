#!/usr/bin/env bats
# bats file_tags=nosan
# make html: the pages and documents as a site

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

site() {
	"$PYTHON" "$ROOT/man/make_site.py" "$@"
}

# look FOLDER: complains of links that lead nowhere, also to a place in a page, of tags that are not closed in order, of scripts, and
# of files that no link leads to
look() {
	"$PYTHON" - "$1" <<-'END'
		import html.parser, os, sys
		root = sys.argv[1]
		VOID = {"meta", "link", "img", "br", "hr", "col", "wbr", "input"}
		class Page(html.parser.HTMLParser):
		    def __init__(self, path):
		        super().__init__()
		        self.path, self.open, self.ids, self.links = path, [], {""}, []
		        self.feed(open(os.path.join(root, path), encoding="utf-8").read())
		        self.close()
		        if self.open:
		            print(path, "open:", self.open)
		    def handle_starttag(self, tag, attributes):
		        a = dict(attributes)
		        if tag == "script" or any(name.startswith("on") for name in a):
		            print(self.path, "script")
		        if tag not in VOID:
		            self.open.append(tag)
		        if a.get("id") in self.ids - {""}:
		            print(self.path, "twice:", a["id"])
		        self.ids.add(a.get("id", ""))
		        self.links += [a[name] for name in ("href", "src") if a.get(name) is not None]
		    def handle_endtag(self, tag):
		        if tag in VOID:
		            return
		        # what may be left open
		        while self.open and self.open[-1] != tag and self.open[-1] in {"p", "li", "dt", "dd"}:
		            self.open.pop()
		        if not self.open or self.open.pop() != tag:
		            print(self.path, "closed:", tag)
		files = {os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names}
		pages = {path: Page(path) for path in files if path.endswith(".html")}
		reached = {"index.html"}
		for path, page in pages.items():
		    for link in page.links:
		        if link.startswith(("https://", "http://", "mailto:")):
		            continue
		        where, _, anchor = link.partition("#")
		        at = os.path.normpath(os.path.join(os.path.dirname(path), where)) if where else path
		        reached.add(at)
		        if at not in files:
		            print(path, "nowhere:", link)
		        elif at in pages and anchor not in pages[at].ids:
		            print(path, "no such place:", link)
		for path in sorted(files - reached):
		    print("no link leads to", path)
	END
}

# has_all FOLDER: every page is there, and in the index with what its NAME says
has_all() {
	local page name
	for page in "$ROOT"/man/*.[1-9]; do
		name=$(basename "$page")
		[ -s "$1/man/$name.html" ] || fail "no $name"
		grep -qF "<a href=\"man/$name.html\">${name%.*}(${name##*.})</a></td><td>" "$1/index.html" || fail "the index has no $name"
	done
	grep -qF '<td>score the rows of a snapshot: write it again with a score for each row</td>' "$1/index.html"
	cmp "$1/examples/kept.svg" "$ROOT/examples/kept.svg"
}

@test "the site has every page, and every link inside it leads somewhere" {
	command -v cmark-gfm >/dev/null || skip "there is no cmark-gfm"
	run -0 --separate-stderr site html
	assert_output html/index.html
	assert_equal "$stderr" ''
	has_all html
	run -0 look html
	assert_output ''
	grep -q '<td>KVzip</td>' html/README.html
	grep -q 'href="man/kvpipe.7.html"' html/README.html
	grep -q 'class="Xr" href="kv-score.1.html"' html/man/kv-evict.1.html
	# a second time: the same bytes
	cp -r html before
	site html >/dev/null
	diff -r before html
}

@test "without cmark-gfm documents are shown as text, and links lead somewhere all the same" {
	mkdir bin
	ln -s "$(command -v mandoc)" bin
	run -0 --separate-stderr env PATH="$PWD/bin" "$PYTHON" "$ROOT/man/make_site.py" html
	assert_equal "$stderr" 'make_site.py: there is no cmark-gfm (apt-get install cmark-gfm): documents are shown as text'
	has_all html
	run -0 look html
	assert_output ''
}

@test "without mandoc there is a message with the package's name, and no site" {
	mkdir bin
	run -1 env PATH="$PWD/bin" "$PYTHON" "$ROOT/man/make_site.py" html
	assert_output 'make_site.py: there is no mandoc, which renders the pages: apt-get install mandoc'
	[ ! -e html ]
}

@test "a folder that has something else in it is left alone" {
	mkdir html
	echo mine >html/notes
	run -1 site html
	assert_output 'make_site.py: html: there is something else in it'
	assert_equal "$(cat html/notes)" mine
}
