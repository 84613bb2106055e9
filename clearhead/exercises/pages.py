"""Write catalogue.json and the pages in docs/exercises from the contracts.

    make pages

A test compares them with the contracts, so they cannot disagree.
"""

from collections.abc import Iterator
from pathlib import Path

from clearhead.exercises.catalogue import BEHAVIOUR, FILE, Entry, make_catalogue, make_entry
from clearhead.exercises.contracts import EXERCISES
from clearhead.exercises.definitions import drop_condition
from clearhead.files.writing import replace_file


def write_pages(folder: str | Path) -> None:
    """Write catalogue.json, a page for each exercise, and README.md, which lists them."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {FILE: make_catalogue()}
    texts |= {folder / name: text for name, text in make_pages().items()}
    for path, text in texts.items():
        with replace_file(path) as file:
            file.write(text.encode())


def make_pages() -> dict[str, str]:
    """The text of each page by file name."""
    catalogue = {name: make_entry(name) for name in EXERCISES}
    pages = {f"{entry.name}.md": "\n".join(_write_page(entry)) for entry in catalogue.values()}
    return {"README.md": "\n".join(_write_list(list(catalogue.values()))), **pages}


def _write_list(entries: list[Entry]) -> Iterator[str]:
    n = sum(len(entry.mistakes) for entry in entries)
    yield "# The exercises\n"
    yield f"{len(entries)} exercises with {n} named mistakes. `clearhead exercise NAME` writes a"
    yield "file to start from, and `clearhead check FILE` says what is wrong with it.\n"
    for id, sentence in BEHAVIOUR.items():
        yield f"In every exercise, `{id}`: {sentence}."
    yield "\n| exercise | what | mistakes |\n|---|---|---|"
    for entry in entries:
        yield f"| [{entry.name}]({entry.name}.md) | {entry.title} | {len(entry.mistakes)} |"
    yield ""


def _write_page(entry: Entry) -> Iterator[str]:
    page = entry.page.partition("#")[0].removesuffix(".md")
    yield f"# {entry.title}\n"
    yield f"```\n{entry.formula}\n```\n"
    yield f"Signature: `{entry.signature}`, {entry.points:g} points."
    yield f"The idea is explained in [{page}](../{entry.page}).\n"
    names = dict.fromkeys(drop_condition(name) for name in entry.names)
    yield "It is found in a file under these names: " + ", ".join(f"`{n}`" for n in names) + ".\n"
    if entry.forbidden:
        yield "Not allowed: " + ", ".join(f"`{name}`" for name in entry.forbidden) + ".\n"
    yield "## Mistakes with a name\n"
    has_categories = any(each["category"] for each in entry.mistakes.values())
    column = " category |" if has_categories else ""
    yield f"| name | term of the formula | what is wrong |{column}"
    yield "|---|---|---|" + ("---|" if has_categories else "")
    for id, mistake in entry.mistakes.items():
        term = entry.terms.get(mistake["term"], mistake["term"])
        last = f" {mistake['category'] or ''} |" if has_categories else ""
        yield f"| `{id}` | {_escape(term)} | {_escape(mistake['sentence'])} |{last}"
    if has_categories:
        yield "\nThe categories are those of DEFault++ (arXiv 2604.28118)."
    yield ""


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    write_pages("docs/exercises")
