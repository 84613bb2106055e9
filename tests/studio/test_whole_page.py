"""The page in one file: joined modules, nothing from outside, text that cannot become a script."""

import base64
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

import clearhead
from clearhead.models.smallest import TorchTransformer
from clearhead.studio import page as page_files
from clearhead.studio.frames import decode_answer
from clearhead.studio.look import look, view_page
from clearhead.studio.sources import Sources
from clearhead.studio.whole_page import join_modules, read_whole, write_whole

MODULES = {p: p.read_text() for p in page_files.FOLDER.rglob("*.js")}
TOP = re.compile(r"^(?:export )?(?:async )?(?:function\*?|class|const|let) \*?(\w+)", re.M)


def test_no_two_modules_define_the_same_name():
    names = Counter(name for text in MODULES.values() for name in set(TOP.findall(text)))
    names += Counter(
        name
        for text in MODULES.values()
        for group in re.findall(r"^(?:export )?(?:const|let) [\[{]([^=]+)[\]}] =", text, re.M)
        for name in re.findall(r"\w+", group)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_every_module_is_joined_and_no_import_is_left():
    script = join_modules()
    assert not re.search(r"^(import|export) ", script, re.M)
    for path, text in MODULES.items():
        assert not re.search(r"^export (default|\{)|^import (?!\{)", text, re.M), path.name
        for name in TOP.findall(text):
            assert re.search(rf"^(async )?(function\*?|class|const|let) {name}\b", script, re.M)


def test_the_file_loads_nothing_and_allows_only_its_own_script():
    whole = read_whole()
    assert not re.search(r'(src|href)="(?!data:)', whole.partition("<script>")[0])
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', whole)[1]
    assert policy.startswith("default-src 'none'; img-src data: blob:; style-src 'sha256-")
    assert "unsafe" not in policy


def test_W21_text_cannot_end_the_data_early():
    answer = {"list_models": {"models": [{"id": "</script><script>alert(1)</script>"}]}}
    whole = write_whole(answer, {"text": "</script><script>alert(2)</script>"})
    assert whole.count("<script>") == read_whole().count("<script>")


def test_look_takes_a_run_or_a_model_with_its_tokenizer(lecture):
    run = lecture.open("substring").run
    page = clearhead.look(run, "abc|c")
    assert "iframe" in page._repr_html_()
    bare = look(run.model, "abc|c", run.tokenizer)
    assert bare.page.count("<script") == page.page.count("<script")
    with pytest.raises(ValueError, match="tokenizer is missing"):
        look(run.model, "abc|c")
    with pytest.raises(TypeError, match="model must be a run or a model of clearhead, got int"):
        look(3, "abc|c")
    with pytest.raises(ValueError, match="text must be the number of a validation picture"):
        look(lecture.open("digits").run, "three")


@pytest.mark.parametrize("name", ["digits", "dates"])
def test_look_says_that_pictures_and_translations_need_the_run(lecture, name):
    run = lecture.open(name).run
    for tokenizer in (None, lecture.open("substring").tokenizer):
        with pytest.raises(ValueError, match="is shown with its run, which reads its input"):
            look(run.model, "3", tokenizer)


def test_look_says_that_the_smallest_transformer_needs_its_run():
    model = TorchTransformer(d_input=3, d_qk=2, d_v=3)
    with pytest.raises(ValueError, match="is shown with its run, which reads its input"):
        look(model, "CAC")


def test_a_run_of_the_smallest_transformer_is_shown_with_its_own_matrices(
    sources, browser, tmp_path
):
    run = sources.open("identity-0001").run
    path = look(run, "CABBA").save(tmp_path / "page.html")
    page = browser.new_page()
    page.goto(Path(path).as_uri())
    weights = run.model.to_numpy().Vm
    texts = page.locator("[data-matrix=Vm] .grid-number").all_text_contents()
    numbers = [float(text.replace("−", "-")) for text in texts]
    np.testing.assert_allclose(numbers, weights.flatten(), atol=0.0051)
    assert page.locator(".word-in").all_text_contents() == [*"CABBA"]
    page.close()


@pytest.mark.parametrize("view", ["smallest", "positions", "kernels", "translation"])
def test_a_file_with_one_answer_offers_no_other(lecture, browser, tmp_path, view):
    """A control for another answer would end in the error that the page has no server."""
    id, shown = EXPORTED[view]
    path = view_page(lecture, id, view=view).save(tmp_path / "page.html")
    page = browser.new_page()
    page.goto(Path(path).as_uri())
    expect(page.locator(shown).first).to_be_visible(timeout=60_000)
    assert page.locator("input[type=range]:visible").count() == 0
    assert page.locator("input:visible:not([readonly])").count() == 0
    for button in page.locator("#view button:visible:enabled:not(.tool)").all():
        button.click()
    for cell in page.locator("[data-matrix] [tabindex='0']").all():
        cell.focus()
        page.keyboard.press("ArrowUp")
    assert page.get_by_text("saved without its server").count() == 0
    page.close()


def test_the_python_of_a_look_begins_with_the_run(lecture):
    run = lecture.open("substring").run
    for model, words in ((run, f"load_run({str(run.folder.path)!r})"), (run.model, "# model and")):
        page = look(model, "abc|c", run.tokenizer).page
        answers = json.loads(re.search(r'id="answers">(.+?)</script>', page)[1])
        encoded = answers['attend [["model","model"],["text","abc|c"]]']
        assert words in decode_answer(base64.b64decode(encoded))["python"]


def test_a_saved_look_works_without_a_server(lecture, browser, tmp_path):
    run = lecture.open("substring").run
    path = look(run, "abccab|cca").save(tmp_path / "page.html")
    page = browser.new_page()
    faults = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: faults.append(request.url))
    page.goto(Path(path).as_uri())
    expect(page.locator("[data-view='text'] canvas").first).to_be_visible(timeout=60_000)
    page.close()
    assert [fault for fault in faults if not fault.startswith(("data:", "blob:", "file:"))] == []


def test_a_look_works_in_the_frame_of_a_notebook(lecture, browser, tmp_path):
    frame = look(lecture.open("substring").run, "abccab|cca")._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!doctype html><body>{frame}</body>")
    page = browser.new_page()
    faults = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto((tmp_path / "notebook.html").as_uri())
    view = page.frame_locator("iframe").locator("[data-view='text']")
    expect(view.locator("canvas").first).to_be_visible(timeout=60_000)
    expect(view.get_by_text("the model answers yes")).to_be_visible()
    view.locator(".head").nth(3).click()
    expect(view.get_by_text("layer 0 · head 3").first).to_be_visible()
    page.close()
    assert faults == []


EXPORTED = {  # view → model, and what is seen when all its answers are there
    "text": ("substring", ".head-open canvas"),
    "generate": ("shakespeare", "text=after layer 1"),
    "picture": ("digits", ".picture-strip canvas, [aria-label='pictures'] canvas"),
    "translation": ("dates", "output:text-is('1883-09-21')"),
    "smallest": (None, "text=Km"),
    "positions": (None, "canvas"),
    "kernels": (None, "canvas"),
}


@pytest.mark.parametrize("view", EXPORTED)
def test_each_view_is_written_to_a_file_that_misses_no_answer(lecture, browser, tmp_path, view):
    id, shown = EXPORTED[view]
    path = view_page(lecture, id, view=view).save(tmp_path / "page.html")
    page = browser.new_page()
    faults = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(Path(path).as_uri())
    page.wait_for_selector(f"[data-view='{view}']")
    expect(page.locator(shown).first).to_be_visible(timeout=60_000)
    page.wait_for_timeout(300)  # no answer is missing later either
    assert page.get_by_text("saved without its server").count() == 0, page.inner_text("body")
    assert page.locator(".stale, .error").count() == 0
    page.close()
    assert faults == []


def test_a_view_that_does_not_show_the_model_is_refused(lecture):
    for id, view, words in (
        ("digits", "text", "view text does not show a VisionTransformer; choose picture"),
        ("shakespeare", "picture", "view picture does not show a GPT; choose text or generate"),
        ("digits", "kernels", "view kernels shows no model: leave out digits"),
        ("digits", "smallest", "view smallest does not show a VisionTransformer"),
    ):
        with pytest.raises(ValueError, match=words):
            view_page(lecture, id, view=view)


def test_held_models_are_opened_by_their_name(lecture):
    other = Sources([])
    held = lecture.open("substring")
    other.add_loaded(held)
    assert other.open("substring") is held
