"""README.md and docs/: outputs are those of the tool, links lead somewhere, and commands that are shown exist.

`docs/outputs.py` runs the commands and makes their outputs; `make docs` writes them.
"""

import functools
import re
import shlex
import subprocess
import sys

import pytest
from conftest import REPOSITORY

PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), REPOSITORY / "examples/README.md", REPOSITORY / "fixtures/README.md"]
)
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
README_LINES = 150
CELL_CHARACTERS = 90
# Phrases that readers must translate first: the list that the outputs are checked with. The glossary has the words to use instead.
LIST = re.compile(r"^const BANNED: &\[&str\] = &\[\n(.*?)^\];$", re.MULTILINE | re.DOTALL)
BANNED = re.findall(r'"(.+)"', LIST.search((REPOSITORY / "crates/vramline-cli/tests/it/words.rs").read_text(encoding="utf-8"))[1])
# Tables that are written from the declarations of the code, whose words are checked where they are declared.
GENERATED = {"docs/reference/json.md", "docs/reference/recording.md"}
# Where a command of a shell ends and the next begins.
OPERATORS = {"|", "||", "&&", ";", "&", ">", ">>", "2>", "2>&1", "do", "done"}


def name_of(path):
    return str(path.relative_to(REPOSITORY))


def prose(text):
    """A page without its fenced blocks."""
    return FENCE.sub("", text)


@functools.cache
def anchors(path):
    """The anchors of a page's headings, as GitHub makes them: small letters, no punctuation, dashes for spaces, a number if it repeats."""
    seen = {}
    for heading in HEADING.findall(prose(path.read_text(encoding="utf-8"))):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
        seen[anchor] = seen.get(anchor, -1) + 1
    return {anchor if number == 0 else f"{anchor}-{number}" for anchor, count in seen.items() for number in range(count + 1)}


def test_outputs_are_those_of_the_tool(binary):
    done = subprocess.run([sys.executable, REPOSITORY / "docs/outputs.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    dead = []
    for groups in LINK.findall(CODE.sub("", prose(page.read_text(encoding="utf-8")))):
        link = "".join(groups)
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_every_page_is_in_the_index():
    index = (REPOSITORY / "docs/README.md").read_text(encoding="utf-8")
    pages = [path.relative_to(REPOSITORY / "docs").as_posix() for path in REPOSITORY.glob("docs/*/*.md")]
    assert [page for page in pages if f"({page})" not in index] == []


def test_the_readme_is_short():
    lines = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= README_LINES
    cells = [cell.strip() for line in lines if line.startswith("|") for cell in line.strip("|").split("|")]
    assert [cell for cell in cells if len(cell) > CELL_CHARACTERS] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_words_are_plain(page):
    text = CODE.sub("", prose(page.read_text(encoding="utf-8")))
    if name_of(page) in GENERATED:
        text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    text = " ".join(text.lower().split())
    assert len(BANNED) > 50
    assert [phrase for phrase in BANNED if phrase in text] == []


@functools.cache
def verbs(binary):
    """Verbs of the tool, with their options."""
    text = subprocess.run([binary, "--help"], capture_output=True, text=True, check=True).stdout
    listed = text.partition("Commands:\n")[2].partition("\n\n")[0]
    names = [name for name in re.findall(r"^  (\w+) ", listed, re.MULTILINE) if name != "help"]
    options = {}
    for name in names:
        text = subprocess.run([binary, name, "--help"], capture_output=True, text=True, check=True).stdout
        options[name] = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text.partition("Options:\n")[2]))
    return options


def test_every_verb_is_in_the_reference(binary):
    headings = anchors(REPOSITORY / "docs/reference/commands.md")
    assert [verb for verb in verbs(binary) if verb not in headings] == []


def shell_commands(text):
    """The commands of the tool in a page: of its blocks for a shell, and in its sentences."""
    for language, block in FENCE.findall(text):
        if language == "console":
            # Only the first line is typed; the rest is output.
            block = re.match(r"\$ ((?:[^\n]*\\\n)*[^\n]*)", block)[1] if block.startswith("$ ") else ""
        elif language != "sh":
            assert not re.search(r"^\$? ?vramline [a-z]", block, re.MULTILINE), f"a block of commands without a language:\n{block}"
            continue
        for line in block.replace("\\\n", " ").splitlines():
            yield from commands_of(line)
    for span in CODE.findall(prose(text)):
        if span.startswith("`vramline "):
            yield from commands_of(span.strip("`").replace("\\|", "|").replace("...", ""))


def commands_of(line):
    """The words of each command of the tool in a line, up to the job that it runs."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";")
    lexer.whitespace_split = True
    words = list(lexer)
    for at, word in enumerate(words):
        if word != "vramline":
            continue
        command = []
        for following in words[at + 1 :]:
            if following == "--" or following in OPERATORS:
                break
            command.append(following)
        yield command


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page, binary):
    known = verbs(binary)
    wrong = []
    for command in shell_commands(page.read_text(encoding="utf-8")):
        verb = command[0] if command else "--help"
        if verb.startswith("-") or verb == "VERB":
            continue
        options = [word.partition("=")[0] for word in command[1:] if re.match(r"--?[a-z]", word)]
        if verb not in known or not {*options} <= known[verb] | {"--help"}:
            wrong.append(" ".join(["vramline", *command]))
    assert wrong == []
