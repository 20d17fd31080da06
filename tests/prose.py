"""Counts how the project writes, and fails beyond a bound: `python -m tests.prose [--list] [PATHS]`.

Without paths it reads the README, the pages, the guides and the package. It counts a page without code, tables and
targets of links. Code inside a sentence is one word. In modules it reads docstrings, comments, strings and names.
"""

import argparse
import ast
import io
import os
import pathlib
import re
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = [ROOT / name for name in ("docs", "guides", "keras_het", "noxfile.py")]
DEFAULT = [*(path for path in sorted(ROOT.glob("*.md")) if path.name != "CHANGELOG.md"), *FOLDERS]

# Per 1,000 words of the pages: what to count, the lowest and the highest figure.
PER_THOUSAND = {
    "you, your": (r"\byou(rs?|rsel(f|ves))?\b", 12, None),
    "where": (r"\bwhere\b", None, 1.5),
    "those, such": (r"\b(those|such)\b", None, 1.5),
    "semicolons": (r";", None, None),
}
LONG, LONGEST = 30, 45  # words of a sentence
MAX_LONG_PERCENT, MIN_VERB_PERCENT = 4.0, 90.0

# A phrase, and what to write in its place.
BANNED = {
    r"whoever|nobody|anybody|in short:": "you, or the person",
    r"(the )?(those|that|these) of(?= )": "the noun",
    r", too\b": "'also' before the verb, or nothing",
    r"by heart": "memorise",
    r"wrong labels?|labels? that we made wrong": "label errors, mislabelled examples, noisy labels",
    r"right labels?": "correct labels",
    r"taken for": "confused with",
    r"arena|rivals?": "benchmark, baselines",
    r"hostile": "untrusted",
    r"shares? of": "fraction of",
}
PHRASES = {re.compile(rf"(?:(?<![\w-])|(?=,))(?:{phrase})(?!\w)", re.I): remedy for phrase, remedy in BANNED.items()}
NAMES = re.compile(
    r"_*(given|found|judged|counted|drawn|solved|(of|by)_\w+|as_it_\w+|in_force|among\w*|\w+_among|NEAR|FREE|SURE|MOST)"
)
BAD_STARTS = ("The", "A", "An", "What", "How", "Whether", "This", "It")
NOUNS = r"As|Does|Its|This|Answers|Examples|Files|Keras|Keys|Labels|Lines|Losses|Names|Numbers|Outputs|Texts|Warnings"
VERB = re.compile(rf"True if|(?!(?:{NOUNS})\b)[A-Z][a-z]*[a-rt-z]s\b(?! of\b)")

# What is no prose of a page, and what stands for it.
CLEANED = [
    (r"\A---\n.*?^---$", ""),
    (r"^[ \t>]*(```+|~~~+).*?^[ \t>]*\1[ \t]*$", ""),
    (r"<!--.*?-->|\{%.*?%\}|\$\$.*?\$\$|!\[[^\]]*\]\([^)]*\)|^[ \t]*\|[^\n]*|^[ \t]*[!?]{3}\+? [^\n]*", ""),
    (r"``.*?``|`[^`]+`|\$[^$\n]+\$", "CODE"),
    (r"<[^>]*>|(?<=\])\([^)]*\)|(?<=\])\[[^\]]*\]|\{ ?[:.#][^}]*\}", ""),
    (r"\b(e\.g|i\.e|al|Eqs?|vs|cf|Fig|[A-SU-Z])\.(?= )", r"\1"),
]
BLOCK = re.compile(r"^[ \t>]*(?:[-*+] |\d+\. |#+ |: )?")
END = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=[\"'(\[*_]*[A-Z0-9])| · ")


def clean(text):
    """Returns a page with its prose alone, on the same lines."""
    for pattern, word in CLEANED:
        lines = lambda match, word=word: match.expand(word) + "\n" * match[0].count("\n")  # noqa: E731
        text = re.sub(pattern, lines, text, flags=re.DOTALL | re.MULTILINE)
    return text


def texts(path):
    """Returns the line and the text of a page, or of each text cell of a guide."""
    source = path.read_text(encoding="utf-8")
    nodes = ast.parse(source).body[1:] if path.suffix == ".py" else []
    cells = [node for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return [(node.lineno, str(node.value.value)) for node in cells] if path.suffix == ".py" else [(1, source)]


def paragraphs(path):
    """Yields the line and the text of each paragraph, heading and item of a list."""
    for first, text in texts(path):
        start, block = first, []
        for number, line in enumerate([*clean(text).splitlines(), ""], first):
            if block and (not line.strip() or BLOCK.match(line)[0].strip()):
                yield start, " ".join(block)
                block = []
            start = start if block else number
            block += [line.strip()] if line.strip() else []


def words(text):
    """Returns the words of a text: whatever has a letter or a digit."""
    return [word for word in text.split() if re.search(r"\w", word)]


def sentences(path):
    """Yields the line, the sentence and its length, for every sentence outside headings."""
    for line, paragraph in paragraphs(path):
        pieces = [] if paragraph.startswith("#") else END.split(BLOCK.sub("", paragraph))
        yield from ((line, piece, len(words(piece))) for piece in pieces if len(words(piece)) > 3)


def strings(path):
    """Yields the line and the text of each comment and string of a Python file."""
    kinds = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None))
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type in kinds:
            yield token.start[0], re.sub(r"``.*?``|`[^`\n]+`", "CODE", token.string)


def banned_phrases(path):
    """Yields the line and the phrase, with its remedy, for each banned phrase."""
    for line, text in paragraphs(path) if path.suffix == ".md" else strings(path):
        for pattern, remedy in PHRASES.items():
            for match in pattern.finditer(text):
                yield line + text[: match.start()].count("\n"), f'"{match[0].strip()}": write {remedy}'


def docstrings(path):
    """Yields the line and the docstring of each function, without tests and properties."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) and not node.name.startswith("test_"):
            is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
            yield from [] if is_property else [(node.lineno, ast.get_docstring(node).splitlines()[0])]


def banned_names(path):
    """Yields the line and the name of each function, argument, variable and attribute with a banned name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = {ast.Name: "id", ast.Attribute: "attr", ast.FunctionDef: "name", ast.ClassDef: "name", ast.arg: "arg"}
        is_read = isinstance(getattr(node, "ctx", None), ast.Load)
        if type(node) in name and not is_read and NAMES.fullmatch(getattr(node, name[type(node)])):
            yield node.lineno, getattr(node, name[type(node)])


def figure(title, value, low=None, high=None):
    """Prints a figure beside its bound; returns whether it is within."""
    bounds = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
    print(f"{title:52}{value:10,.1f}", *bounds, sep="  ")
    return (low is None or value >= low) and (high is None or value <= high)


def report(paths, show_all=False):
    """Prints the lines to mend and the figures; returns whether all figures are within their bounds."""

    def rows(function, paths):
        return [(path, *row) for path in paths for row in function(path)]

    pages = [path for path in paths if path.suffix == ".md" or path.parent.name == "guides"]
    code = [path for path in paths if path.suffix == ".py"]
    body = "\n".join(row[2] for row in rows(paragraphs, pages))
    spoken, starts = rows(sentences, pages), rows(docstrings, code)
    long, verbless = [row for row in spoken if row[3] > LONG], [row for row in starts if not VERB.match(row[2])]
    verb_percent = 100 * (1 - len(verbless) / max(len(starts), 1))
    names, phrases = rows(banned_names, code), rows(banned_phrases, paths)
    longest = [row for row in long if row[3] > LONGEST]
    shown = {"long sentence": longest, "name": names, "phrase": phrases}
    if show_all or verb_percent < MIN_VERB_PERCENT:
        shown |= {"no verb": verbless} | ({"long sentence": long} if show_all else {})
    for title, lines in shown.items():
        for path, line, text, *_ in lines:
            print(f"{os.path.relpath(path)}:{line}: {title}: {text}")
    results = [figure("words of pages", len(words(body)))]
    for title, (pattern, low, high) in PER_THOUSAND.items() if pages else ():
        value = 1000 * len(re.findall(pattern, body, re.IGNORECASE)) / max(len(words(body)), 1)
        results.append(figure(f"{title}, per 1,000 words", value, low, high))
    results += [
        figure(f"% of sentences above {LONG} words", 100 * len(long) / max(len(spoken), 1), high=MAX_LONG_PERCENT),
        figure(f"sentences above {LONGEST} words", len(longest), high=0),
        figure("% of docstrings that begin with a verb", verb_percent, low=MIN_VERB_PERCENT),
        figure(f"docstrings with {', '.join(BAD_STARTS)}", sum(row[2].split()[0] in BAD_STARTS for row in verbless)),
        figure("banned names", len(names), high=0),
        figure("banned phrases", len(phrases), high=0),
    ]
    return all(results)


def files(paths):
    result = []
    for path in map(pathlib.Path, paths):
        modules = path.glob("*.py") if path.name == "guides" else path.rglob("*.py")
        result += [*sorted(path.glob("*.md")), *sorted(modules)] if path.is_dir() else [path]
    return result


def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="*", default=DEFAULT, help="files and folders")
    parser.add_argument("--list", action="store_true", help="show all long sentences and docstrings without a verb")
    options = parser.parse_args(arguments)
    return int(not report(files(options.paths), options.list))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
