"""Text from outside is never HTML: whatever a model, a run or a file calls itself."""

from itertools import cycle

import pytest
from playwright.sync_api import expect

from clearhead.studio.frames import decode_answer, encode_answer

expect.set_options(timeout=60_000)
PAYLOADS = [
    "<script>window.ran = 1</script>",
    "<img src=x onerror=window.ran=2>",
    "</p></div></section><b>3",
    "<svg onload=window.ran=4>",
    "<iframe srcdoc='<script>top.ran = 5</script>'>",
    "\"><input autofocus onfocus='window.ran=6'>",
    "' onmouseover='window.ran=7",
    "<a href=javascript:window.ran=8>8</a>",
    "<style>body { display: none }</style>",
    "&lt;u&gt;{{10}}${window.ran=10}",
]
# What names something in an answer: tokens, classes, layers, words, examples, runs, sentences.
NAMES = {
    *("names", "texts", "name", "text", "classes", "titles", "words", "source", "target", "label"),
    *("examples", "about", "task", "sentence", "metric", "target_name", "pieces", "unknown"),
}
KEPT = {"id", "kind", "python", "view", "scheme", "order"}


def poison(value, payloads, is_name=False):
    """The answer with every name replaced."""
    if isinstance(value, dict):
        return {
            key: item if key in KEPT else poison(item, payloads, key in NAMES)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [poison(item, payloads, is_name) for item in value]
    return next(payloads) if isinstance(value, str) and is_name else value


def answer_with_payloads(page):
    payloads = cycle(PAYLOADS)

    def answer(route):
        response = route.fetch()
        found = poison(decode_answer(response.body()), payloads)
        route.fulfill(status=response.status, body=encode_answer(found))

    def list_runs(route):
        found = poison(route.fetch().json(), payloads)
        for run in found["runs"]:
            run["id"] = next(payloads)
        route.fulfill(json=found)

    page.route("**/api/ask/**", answer)
    page.route("**/api/runs", list_runs)


@pytest.mark.parametrize(
    ("view", "state", "shown"),
    [
        ("text", {"model": "substring", "text": "abc|c"}, ".heads .head"),
        ("generate", {"model": "shakespeare", "text": "ROMEO:"}, ".bar-row"),
        ("picture", {"model": "digits", "number": 3}, ".picture-heads canvas"),
        ("translation", {"model": "dates", "text": "sep 21, 1883"}, ".beam-node"),
        ("runs", {}, ".run-run"),
    ],
)
def test_W21_no_name_from_outside_becomes_an_element(page, view, state, shown):
    dialogs = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    answer_with_payloads(page)
    page.goto_view(view, **state)
    page.wait_for_selector(shown)
    page.wait_for_timeout(300)  # milliseconds; an image that cannot be loaded says so by then
    for node in page.locator("#view .tool[aria-expanded]").all():
        node.click()
    elements = "script, iframe, style, u, a[href^=javascript], img[src=x], [onerror], [onload]"
    found = page.locator("body").evaluate(
        "(body, elements) => [...body.querySelectorAll(elements + ', [onfocus], [onmouseover]')]"
        ".map((node) => node.outerHTML.slice(0, 99)).filter((html) => !html.includes('main.js'))",
        elements,
    )
    assert (found, dialogs) == ([], [])
    assert page.evaluate("window.ran") is None
    words = page.locator("#view").text_content().replace("·", " ")  # blanks of tokens
    seen = [each for each in PAYLOADS if each in words]
    assert len(seen) >= 3, f"only {seen} are shown as they are"
    page.expected.append("status of 404")  # the runs of these names do not exist
