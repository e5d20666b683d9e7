"""Brings the tables of options in command-line.md up to date with the parsers.

    python docs/command_reference.py            # rewrites the tables
    python docs/command_reference.py --check    # status 1 if a table is not current

Text and examples around the tables are written by hand and stay. A command without a section gets
one at the end, for which somebody then writes an example.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tvm_dtr.cli.entry import make_parser

PAGE = Path(__file__).with_name("command-line.md")
EVERYWHERE = {"--help", "--json", "--debug", "--version"}  # told once, at the top of the page
BEGIN, END = "<!-- options of {} -->", "<!-- end of options -->"


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every parser that does work: those without subcommands of their own, in order."""
    nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not nested:
        yield parser
    for action in nested:
        for child in dict.fromkeys(action.choices.values()):
            yield from commands(child)


def table(parser: argparse.ArgumentParser) -> str:
    """The arguments of one command as a table in Markdown, between its two comments."""
    formatter = parser._get_formatter()
    rows = []
    for action in parser._actions:
        if EVERYWHERE.intersection(action.option_strings) or action.help == argparse.SUPPRESS:
            continue
        text = formatter._expand_help(action) if action.help else ""
        rows.append(f"| {_spelling(action)} | {' '.join(text.split()).replace('|', '&#124;')} |")
    lines = [BEGIN.format(parser.prog)]
    if rows:
        lines += ["", "| argument | meaning |", "|---|---|", *rows, ""]
    return "\n".join([*lines, END])


def _spelling(action: argparse.Action) -> str:
    value = action.metavar or (action.choices and "{" + ",".join(map(str, action.choices)) + "}")
    if isinstance(value, tuple):
        value = " ".join(value)
    if action.option_strings and action.nargs != 0 and value is None:
        value = action.dest.upper()
    if not action.option_strings:
        many = action.nargs in ("+", "*")
        return f"`{value or action.dest}{'...' if many else ''}`"
    suffix = "" if action.nargs == 0 else f" {value}"
    spelled = ", ".join(f"`{option}{suffix}`" for option in action.option_strings)
    return spelled + (" (required)" if action.required else "")


def current(page: str) -> str:
    """The page with every table as the parsers have it today."""
    for parser in commands(make_parser()):
        begin = BEGIN.format(parser.prog)
        pattern = re.compile(re.escape(begin) + r"\n.*?" + re.escape(END), re.DOTALL)
        fresh = table(parser)
        if pattern.search(page):
            page = pattern.sub(lambda _, fresh=fresh: fresh, page)
        else:
            page = f"{page.rstrip()}\n\n## `{parser.prog}`\n\n{parser.description}\n\n{fresh}\n"
    return page


def main(argv: list[str]) -> int:
    written = PAGE.read_text(encoding="utf-8")
    wanted = current(written)
    if "--check" not in argv:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    diff = difflib.unified_diff(
        written.splitlines(), wanted.splitlines(), str(PAGE), "what the parsers say", lineterm=""
    )
    print("\n".join(diff), end="")
    return int(written != wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
