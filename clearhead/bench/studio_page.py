"""The page of the studio in a browser: the first paint, all maps after a letter, zooming.

    first paint     first contentful paint, from opening the link
    maps            from the last letter typed to the frame that shows the last of the 36 maps; once
                    after a single letter, once after several
    zooming         the time between two frames, mean and longest, while every frame zooms a matrix
                    of 256 × 256 cells; the page also shows all 48 maps of this model

Chromium runs without a window. Playwright is a dependency of development only: where it or Chromium
is missing, a sentence says so and there are no rows.
"""

import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch

from clearhead.bench.row import Row, Rows
from clearhead.bench.studio_load import Running, run_studio
from clearhead.data.tokenizers import BytePairTokenizer
from clearhead.interop import export
from clearhead.models import GPT, GPTConfig

LENGTH, SIDE = 128, 256  # tokens of the text for the maps, and for the matrix to zoom
N_LAYERS, N_HEADS, D_MODEL = 6, 6, 384
MORE_HEADS = 8  # of each layer, for zooming
N_TIMES = 5  # a page is opened, a letter typed
N_LETTERS, BETWEEN = 5, 150  # letters typed one after the other; milliseconds between them
AT_REST = 400  # milliseconds after the last letter; then the page asks nothing more
N_FRAMES = 120
MISSING = "the page is not measured: {} is missing (`make browser` installs it)"
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]  # as root in a container

# delay: a promise of the time from the last letter typed to the frame after the last map was drawn.
# Only maps of the new text count. A letter is a token, so those of an earlier text are smaller.
WATCH_MAPS = """
    let typed, finish, length, left = 0;
    const begin = ({ target }) => {
      [typed, length, left] = [performance.now(), target.value.length, N_MAPS];
      window.delay = new Promise((resolve) => { finish = resolve; });
    };
    addEventListener("input", begin, true);
    const draw = CanvasRenderingContext2D.prototype.putImageData;
    CanvasRenderingContext2D.prototype.putImageData = function (...given) {
      draw.apply(this, given);
      if (!this.canvas.closest?.(".heads") || this.canvas.width !== length) return;
      left -= 1;
      const [since, done] = [typed, finish]; // another letter may come before the frame
      if (left === 0) requestAnimationFrame(() => done(performance.now() - since));
    };
""".replace("N_MAPS", str(N_LAYERS * N_HEADS))
FIRST_PAINT = """
    new Promise((resolve) => {
      const read = (list) => {
        const [paint] = list.getEntriesByName("first-contentful-paint");
        if (paint) resolve(paint.startTime);
      };
      new PerformanceObserver(read).observe({ type: "paint", buffered: true });
    })
"""
ZOOM = """
    (canvas, n) => new Promise((resolve) => {
      const box = canvas.getBoundingClientRect(), times = [];
      const place = { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2 };
      const zoom = { ...place, ctrlKey: true, bubbles: true, cancelable: true };
      const step = (now) => {
        times.push(now);
        if (times.length > n) return resolve(times.slice(1).map((time, i) => time - times[i]));
        const deltaY = times.length < n / 2 ? -8 : 8;
        canvas.dispatchEvent(new WheelEvent("wheel", { ...zoom, deltaY }));
        requestAnimationFrame(step);
      };
      requestAnimationFrame(step);
    })
"""


def page(n_times: int = N_TIMES) -> Rows:
    """Measure a page with a GPT of 36 heads, and 48 for zooming; docs/studio.md has the targets."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium, missing = None, "playwright"
    else:
        missing = "chromium"
    if chromium is None:
        print(MISSING.format(missing), file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        model = _write_model(Path(folder) / "model", N_HEADS)
        larger = _write_model(Path(folder) / "larger", MORE_HEADS)
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        with run_studio(str(model), str(larger)) as studio:
            first = [_measure_first_paint(browser, studio) for _ in range(n_times)]
            maps = _measure_maps(browser, studio, n_times)
            typing = _measure_maps(browser, studio, n_times, N_LETTERS)
            frames = _measure_zoom(browser, studio)
        browser.close()
    n, zoom = N_LAYERS * MORE_HEADS, f"zooming {SIDE} × {SIDE} of"
    return [
        Row("first paint of the page", statistics.median(first), "target", 1.0),
        Row("36 maps after a letter", statistics.median(maps), "target", 0.3),
        Row(f"36 maps after {N_LETTERS} letters", statistics.median(typing), "target", 0.3),
        Row(f"a frame while {zoom} {n} heads", statistics.mean(frames), "60 a second", 1 / 60),
        Row(f"the longest of {N_FRAMES} frames", max(frames), "60 a second", 1 / 60),
    ]


def _write_model(folder: Path, n_heads: int) -> Path:
    """A GPT with random weights, and a tokenizer for which a letter is a token."""
    torch.manual_seed(0)
    tokenizer = BytePairTokenizer.train(["ab"], vocab_size=257)
    config = GPTConfig(
        vocab_size=tokenizer.vocab_size,
        max_len=SIDE,
        d_model=D_MODEL,
        n_layers=N_LAYERS,
        n_heads=n_heads,
    )
    export(GPT(config), folder, tokenizer=tokenizer)
    return folder


def _open_text(browser: Any, studio: Running, n: int, model: str = "model") -> Any:
    """The view Text of a text of n letters, in a page of its own."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.add_init_script(WATCH_MAPS)
    page.goto(studio.link)
    text = "".join("abcdefghijklm"[(i * i) % 13] for i in range(n))
    state = urlencode({"view": "text", "model": model, "text": text})
    page.goto("about:blank")  # because a new # alone would not load the page anew
    page.goto(f"http://{studio.host}/#{state}")
    page.wait_for_selector(".heads .head")
    return page


def _measure_first_paint(browser: Any, studio: Running) -> float:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(studio.link)
    milliseconds: float = page.evaluate(FIRST_PAINT)
    page.context.close()
    return milliseconds / 1000


def _measure_maps(browser: Any, studio: Running, n_times: int, n_letters: int = 1) -> list[float]:
    """The seconds until all maps are drawn, each time after n_letters letters typed in a row.

    The text has LENGTH tokens in the end.
    """
    page = _open_text(browser, studio, LENGTH - n_times * n_letters)
    page.get_by_label("text", exact=True).press("End")
    found = []
    for _ in range(n_times):
        page.wait_for_timeout(AT_REST)
        studio.wait_until_idle()
        for letter in "abcdefghij"[:n_letters]:
            page.wait_for_timeout(BETWEEN)
            page.keyboard.press(letter)
        found.append(page.evaluate("delay") / 1000)
    page.context.close()
    return found


def _measure_zoom(browser: Any, studio: Running) -> list[float]:
    """The seconds from each frame to the next."""
    page = _open_text(browser, studio, SIDE, "larger")
    assert page.locator(".heads .head").count() == N_LAYERS * MORE_HEADS
    canvas = page.locator(".head-open canvas.matrix")
    assert canvas.evaluate("(canvas) => canvas.matrix.T") == SIDE
    times: list[float] = canvas.evaluate(ZOOM, N_FRAMES)
    page.context.close()
    return [milliseconds / 1000 for milliseconds in times]
