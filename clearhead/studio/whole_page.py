"""The page in one HTML file that needs no server: what `look`, --export and "save page" write.

    write_whole({"attend": answer}, {"view": "text", "model": "substring"})

The file contains the style sheet and all scripts. The modules are joined into one script, without
their import lines and the word `export`. This works because no two modules define the same name at
their top level (a test checks this). A content security policy allows this script and style only.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources

from clearhead.studio.frames import encode_answer

IMPORT = re.compile(
    r'^import \{[^}]*\} from "\./([\w/]+\.js)";\n|^import \{[^}]*\} from "\.\./([\w/]+\.js)";\n',
    re.M,
)


def write_whole(answers: Mapping[str, object], state: Mapping[str, str]) -> str:
    """The HTML of the page with these answers, by question; state: the values of its address."""
    encoded = {name: _encode_base64(encode_answer(answer)) for name, answer in answers.items()}
    page = read_whole()
    # Only the first match: the script, whose hash is in the policy, contains these texts too.
    page = page.replace('id="answers">{}<', f'id="answers">{_write_json(encoded)}<', 1)
    return page.replace('id="start">[]<', f'id="start">{_write_json(list(state.items()))}<', 1)


@cache
def read_whole() -> str:
    """The page without answers."""
    style, script = _read("style.css"), join_modules()
    allowed = f"style-src 'sha256-{_hash(style)}'; script-src 'sha256-{_hash(script)}'"
    policy = f"default-src 'none'; img-src data: blob:; {allowed}"
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
    )
    data = (
        '<script type="application/json" id="answers">{}</script>\n'
        '<script type="application/json" id="start">[]</script>\n'
    )
    page = re.sub(r"<(link|script) .*\n", "", _read("index.html"))
    page = page.replace("</head>", head + "</head>")
    return page.replace("</body>", f"{data}<script>{script}</script>\n</body>")


def join_modules() -> str:
    """All modules of the page as one script, each after those it imports."""
    parts = [
        re.sub(r"^export ", "", IMPORT.sub("", _read(name)), flags=re.M)
        for name in dict.fromkeys(_list_modules("main.js"))
    ]
    icon = f"data:image/svg+xml;base64,{_encode_base64(_read('icon.svg').encode())}"
    body = "\n".join(parts).replace('"icon.svg"', f'"{icon}"')
    return f'"use strict";\n(() => {{\n{body}}})();\n'


def _list_modules(name: str) -> Iterator[str]:
    """The modules that a module imports, then the module itself; with repetitions."""
    for own, above in IMPORT.findall(_read(name)):
        folder = name.rpartition("/")[0]
        yield from _list_modules(above or (f"{folder}/{own}" if folder else own))
    yield name


def _read(name: str) -> str:
    page = resources.files("clearhead.studio").joinpath("page")
    return page.joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _write_json(value: object) -> str:
    """A value as JSON inside <script>, with "<" escaped, which could end the script early."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
