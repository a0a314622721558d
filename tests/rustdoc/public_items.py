"""The public items of the library, from the pages that `cargo doc` made of it.

    cargo doc --no-deps -p vramline && python3 tests/rustdoc/public_items.py target/doc/vramline

prints the items that all.html lists. With --check FILE it compares them with a list, and fails too where a field or a function shows a type
that has no page: one that users get and cannot name.
"""

import argparse
import html
import re
import sys
from pathlib import Path

# Parts of a declaration that are no types of ours.
WORDS = {"Self", "Item", "Output", "Error"}


def pages(folder: Path) -> dict[str, str]:
    """Each item with its page, as in `struct documents::Row`."""
    found = re.findall(r'<li><a href="([\w/]*?(\w+)\.\w+\.html)">([^<]+)</a>', (folder / "all.html").read_text())
    return {f"{kind} {name}": page for page, kind, name in found}


def unnamed(text: str) -> set[str]:
    """The types in fields and functions of a page that are no links: rustdoc links whatever has a page, also of other crates."""
    fields = re.findall(r'<span id="structfield[^"]*"[^>]*>.*?<code>(.*?)</code>', text, re.DOTALL)
    heads = re.findall(r'<h4 class="code-header">(.*?)</h4>|<pre class="rust item-decl"><code>(.*?)</code>', text, re.DOTALL)
    functions = [head for pair in heads for head in pair if re.search(r"\bfn <", head)]
    bare = set()
    for shown in fields + functions:
        for gone in (r"<a [^>]*>.*?</a>", r'<(?:span|div) class="where">.*', r"<[^>]+>"):
            shown = re.sub(gone, "", shown, flags=re.DOTALL)
        bare |= set(re.findall(r"\b[A-Z]\w*[a-z]\w*", html.unescape(shown))) - WORDS
    return bare


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, help="the pages of the crate")
    arguments.add_argument("--check", type=Path, metavar="FILE", help="compare with this list")
    args = arguments.parse_args()
    found = pages(args.folder)
    if args.check is None:
        print("\n".join(sorted(found)))
        return
    expected = args.check.read_text().splitlines()
    wrong = [f"public, and not in {args.check}: {item}" for item in sorted(found) if item not in expected]
    wrong += [f"no longer public: {item}" for item in expected if item not in found]
    for item, page in sorted(found.items()):
        wrong += [f"{item} shows {name}, which has no page" for name in sorted(unnamed((args.folder / page).read_text()))]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
