"""The Runs view, as a person uses it: numbers as in metrics.jsonl, live, compared, started."""

import json
import math
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from page_numbers import print_number
from playwright.sync_api import expect
from small_runs import SMALL

from clearhead.files.lock import lock_folder
from clearhead.runs import load_run
from clearhead.runs.folder import METRICS, RunFolder
from clearhead.studio.listing import LECTURE

expect.set_options(timeout=60_000)
GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def folder(studio, page):
    """The folder of runs of the studio, empty again afterwards."""
    runs = Path(studio.log.name).parent / "runs"
    runs.mkdir(exist_ok=True)
    before = set(runs.iterdir())
    yield runs
    page.goto("about:blank")  # or else it would ask for what a removed run computes
    for path in set(runs.iterdir()) - before:
        shutil.rmtree(path)


def copy_run(folder, name, **changes):
    """A copy of the small trained classifier under another name."""
    run = RunFolder(shutil.copytree(GOLDEN / "substring-0001", folder / name))
    config = {**run.config, "model": {**run.config["model"], **changes}}
    (run / "config.json").write_text(json.dumps(config))
    return run


def check_numbers(page, id, metrics):
    """The last number of every metric, as the page prints it."""
    row = page.locator(f".run-last tr[data-run='{id}']")
    expect(row.locator("td").nth(1)).to_have_text(str(metrics[-1]["step"]))
    for name in {name for line in metrics for name in line} - {"step"}:
        last = next(line[name] for line in reversed(metrics) if name in line)
        expect(row.locator(f"td[data-metric='{name}']")).to_have_text(print_number(last))


def test_the_last_numbers_are_those_of_metrics_jsonl(page):
    for id in ("substring", "digits"):
        page.goto_view("runs", runs=id)
        metrics = RunFolder(LECTURE / id).read_metrics()
        check_numbers(page, id, metrics)
        charts = page.locator(".run-chart")
        names = {name for line in metrics for name in line} - {"step"}
        expect(charts).to_have_count(len(names))
        assert {chart.get_attribute("data-metric") for chart in charts.all()} == names


def test_the_name_of_an_axis_does_not_cover_its_numbers(page):
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 844})
        page.goto_view("runs", runs="substring")
        expect(page.locator(".run-chart").first).to_be_visible()
        for chart in page.locator(".run-chart").all():
            numbers = chart.locator(".chart-number[text-anchor='end']").all()
            first = min(number.bounding_box()["x"] for number in numbers)
            name = chart.locator(".chart-name[transform]").bounding_box()
            assert name["x"] + name["width"] <= first


def test_two_runs_share_each_chart_and_only_what_differs_is_listed(page, folder):
    copy_run(folder, "wide-0001", d_model=48)
    page.goto_view("runs", runs="substring")
    page.get_by_label("show wide-0001").check()
    legend = page.locator(".run-chart").first.locator(".legend-entry")
    expect(legend).to_have_text(["substring", "wide-0001"])
    lines = page.locator(".run-chart").first.locator("polyline")
    expect(lines).to_have_count(2)
    check_numbers(page, "wide-0001", RunFolder(folder / "wide-0001").read_metrics())
    rows = page.locator(".differences tbody tr")
    expect(rows.filter(has_text="training.steps").locator("td")).to_have_text(
        ["training.steps", "2200", "4"]
    )
    expect(rows.filter(has_text="model.d_input")).to_have_count(0)
    assert "substring,wide-0001" in page.evaluate("new URLSearchParams(location.hash).get('runs')")
    page.get_by_label("show wide-0001").uncheck()
    expect(lines).to_have_count(1)


def test_a_run_grows_on_the_page_while_it_is_written_and_cut_lines_go(page, folder):
    run = copy_run(folder, "live-0001")
    shutil.rmtree(run.checkpoints)
    size = (run / METRICS).stat().st_size
    page.goto_view("runs", runs="live-0001")
    row = page.locator(".run-table tr[data-run='live-0001']")
    expect(row.locator(".state")).to_have_text("stopped")
    with lock_folder(run.path):
        expect(row.locator(".state")).to_have_text("running")
        run.add_metrics({"step": 30, "loss": 0.123456, "val_worst": 0.75})
        check_numbers(page, "live-0001", run.read_metrics())
        expect(row.locator(".step-words")).to_have_text("30/4")
        run.add_sample(30, "<b>a sample</b>")
        expect(page.locator(".sample")).to_have_text("<b>a sample</b>")
        run.cut_back({METRICS: size, "samples.txt": 0}, lambda sentence: None)
        run.add_metrics({"step": 5, "loss": 0.25})
        check_numbers(page, "live-0001", run.read_metrics())
        expect(page.locator(".run-chart[data-metric='val_worst']")).to_have_count(0)
    expect(row.locator(".state")).to_have_text("stopped")
    expect(row.get_by_role("button", name="resume")).to_be_enabled()


def test_the_last_loss_is_explained_with_its_numbers(page):
    page.goto_view("runs", runs="shakespeare")
    panel = page.get_by_role("region", name="Curves")
    expect(panel.locator(".run-last tbody tr")).to_have_count(1)
    panel.get_by_role("button", name="explain").click()
    loss = RunFolder(LECTURE / "shakespeare").read_metrics()[-1]["val_loss"]
    words = f"exp(val_loss) = exp({print_number(loss)}) = {print_number(math.exp(loss))}"
    expect(panel.locator(".explanation")).to_contain_text(words)


def luminance(colour):
    """Of a colour such as "rgb(24, 28, 34)", as WCAG defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_line_of_a_chart_stands_out_from_its_panel(page, folder, scheme):
    page.emulate_media(color_scheme=scheme)
    for name in ("wide-0001", "wide-0002"):
        copy_run(folder, name)
    page.goto_view("runs", runs="substring,digits,shakespeare,dates,wide-0001,wide-0002")
    lines = page.locator(".run-chart").first.locator("polyline")
    expect(lines).to_have_count(6)
    for _ in range(50):  # while the charts are drawn again, their old lines have no colour
        colours = lines.evaluate_all("(all) => all.map((line) => getComputedStyle(line).stroke)")
        if len(set(colours)) == 6:
            break
        page.wait_for_timeout(100)
    panel = page.get_by_role("region", name="Curves")
    ground = panel.evaluate("(node) => getComputedStyle(node).backgroundColor")
    assert len(set(colours)) == 6
    for colour in colours:
        high, low = sorted((luminance(colour), luminance(ground)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 3


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("training", "early-0001 prepares its data and takes its first steps …"),
        ("stopping", "The training stops."),
        ("ended", "The training ended before its first step; there was nothing to save."),
    ],
)
def test_a_training_that_has_not_begun_does_not_say_that_it_is_saved(page, folder, state, words):
    run = copy_run(folder, "early-0001")
    shutil.rmtree(run.checkpoints)
    (run / METRICS).unlink()
    training = {"run": "early-0001", "command": "clearhead train", "error": None, "state": state}
    page.route(
        "**/api/runs",
        lambda route: route.fulfill(json={**route.fetch().json(), "training": training}),
    )
    page.goto_view("runs", runs="substring")
    expect(page.locator(".training-words")).to_have_text(words)
    page.unroute_all(behavior="wait")


def test_a_run_whose_folder_is_deleted_is_no_longer_chosen(page, folder):
    run = copy_run(folder, "gone-0001")
    page.goto_view("runs", runs="nosuch-0001,gone-0001,substring")
    expect(page.locator("#status")).to_have_text("There is no run nosuch-0001 here.")
    expect(page.locator(".run-last tbody tr")).to_have_count(2)
    page.get_by_role("region", name="Weights").get_by_role("button", name="gone-0001").click()
    expect(page.locator(".histogram-large")).to_be_visible()
    shutil.rmtree(run.path)
    expect(page.locator("#status")).to_have_text("There is no run gone-0001 here.")
    expect(page.locator(".run-last tbody tr")).to_have_count(1)
    expect(page.locator(".histogram-large")).to_have_count(0)
    assert page.evaluate("new URLSearchParams(location.hash).get('runs')") == "substring"
    assert page.get_by_text("gone-0001", exact=True).count() == 0
    page.goto_view("runs", runs="nosuch-0001")
    expect(page.locator(".run-last tbody tr")).to_have_count(1)


def test_a_run_without_a_sample_does_not_hide_those_of_another(page, folder):
    (copy_run(folder, "early-0001") / "samples.txt").unlink()
    page.goto_view("runs", runs="early-0001,substring")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel = page.get_by_role("region", name="Samples")
    expect(panel.get_by_text("There is no sample yet.")).to_be_visible()
    panel.get_by_role("button", name="substring").click()
    samples = RunFolder(LECTURE / "substring").read_samples()
    assert panel.locator(".sample").text_content() == samples[-1][1]
    panel.get_by_label("copy as Python").click()
    expect(page.locator("#status")).to_contain_text("Copied")
    exec(page.evaluate("navigator.clipboard.readText()"), made := {})
    assert made["samples"] == samples


@pytest.mark.parametrize("name", ["Samples", "What differs", "Curves"])
def test_without_a_run_there_is_no_python_to_copy(page, name):
    page.goto_view("runs", runs="substring")
    page.get_by_label("show substring").uncheck()
    page.get_by_role("region", name=name).get_by_label("copy as Python").click()
    expect(page.locator("#status")).to_contain_text(re.compile("Choose (a|two) runs? first"))


def test_the_form_says_what_became_of_its_training(page):
    """On a narrow screen the list of runs is far above the form."""
    training = {"run": None, "command": "clearhead train", "error": None, "state": "starting"}

    def answer(route):
        route.fulfill(json={**get_runs(route), "training": training})

    def get_runs(route):
        return route.fetch(url=f"{page.url.partition('#')[0]}api/runs", method="GET").json()

    page.goto_view("runs")
    form = page.get_by_role("region", name="Start a training")
    form.get_by_label("recipe").select_option("identity")
    page.route("**/api/runs", answer)
    page.route("**/api/trainings", answer)
    form.get_by_role("button", name="start training").click()
    expect(form.get_by_text("The training is starting")).to_be_visible()
    training |= {"state": "ended", "error": "steps must be at least 1, got 0"}
    expect(form.locator(".error")).to_have_text("steps must be at least 1, got 0")
    page.unroute_all(behavior="wait")


def test_samples_are_shown_step_by_step(page):
    page.goto_view("runs", runs="substring")
    samples = RunFolder(LECTURE / "substring").read_samples()
    panel = page.get_by_role("region", name="Samples")
    for place in (len(samples) - 1, 0):
        panel.get_by_role("slider").evaluate(
            f"(node) => {{ node.value = {place}; node.dispatchEvent(new Event('input')); }}"
        )
        heading, text = samples[place]
        expect(panel.locator("output")).to_have_text(heading)
        assert panel.locator(".sample").text_content() == text


def test_weights_have_the_numbers_of_pytorch(page, lecture):
    page.goto_view("runs", runs="substring")
    panel = page.get_by_role("region", name="Weights")
    panel.get_by_role("button", name="show weights").click()
    name = "stack.blocks.1.attention.proj_k.weight"
    panel.get_by_title(name).click()
    weight = lecture.open("substring").model.get_parameter(name).detach()
    large = panel.locator(".histogram-large")
    expect(large.locator("h3")).to_have_text(name)
    for word, value in {
        "mean": weight.mean(),
        "std": weight.std(correction=0),
        "min": weight.min(),
        "max": weight.max(),
    }.items():
        cell = large.locator(f"th:text-is('{word}') + td")
        expect(cell).to_have_text(print_number(value.item()))
    table = lecture.open("substring").model.embedding.weight.detach().T
    numbers = panel.locator(".bar-number")
    expect(numbers).to_have_text([print_number(x) for x in table.norm(dim=1).tolist()])
    panel.get_by_role("button", name="explain").click()
    expect(panel.locator(".explanation")).to_contain_text(print_number(weight.mean().item()))
    page.goto_view("runs", runs="substring,digits")
    expect(panel.get_by_text("Choose a run to see its weights.")).to_be_visible()
    panel.get_by_role("button", name="digits").click()
    expect(panel.locator(".histogram-large")).to_be_visible()
    expect(panel.get_by_text("Choose a run to see its weights.")).to_have_count(0)


def test_the_python_of_each_panel_gives_what_it_shows(page):
    page.goto_view("runs", runs="substring,digits")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    expect(page.locator(".run-last tbody tr")).to_have_count(2)
    form = page.get_by_role("region", name="Start a training")
    form.get_by_label("recipe").select_option("identity")
    form.locator("[name='training.steps']").fill("70")
    made = {}
    for name in ("Curves", "Samples", "What differs", "Start a training"):
        page.get_by_role("region", name=name).get_by_label("copy as Python").click()
        expect(page.locator("#status")).to_contain_text("Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        exec(copied.replace("result = train", "# "), made)
        page.locator("#status").evaluate("(node) => node.replaceChildren()")
    folders = [RunFolder(LECTURE / id) for id in ("substring", "digits")]
    assert list(made["metrics"].values()) == [folder.read_metrics() for folder in folders]
    assert made["samples"] == folders[0].read_samples()
    shown = page.locator(".differences tbody td.name").all_text_contents()
    assert [name for name, _, _ in made["differences"]] == shown
    assert made["recipe"].training.steps == 70


def test_a_run_opens_in_the_view_of_its_model(page, folder):
    copy_run(folder, "mine-0001")
    page.goto_view("runs")
    page.get_by_role("button", name="open mine-0001").click()
    page.wait_for_selector("[data-view='text']")
    assert page.locator(".model-choice select").input_value() == "mine-0001"


def test_a_run_of_the_smallest_transformer_opens_with_its_matrices(page, folder):
    shutil.copytree(GOLDEN / "identity-0001", folder / "small-0001")
    weights = load_run(folder / "small-0001").model.to_numpy()
    page.goto_view("runs")
    page.get_by_role("button", name="open small-0001").click()
    for turn in range(2):
        page.wait_for_selector("[data-view='smallest']")
        chosen = page.get_by_role("button", name="small-0001", exact=True)
        expect(chosen).to_have_attribute("aria-pressed", "true")
        expect(page.locator("[data-matrix=Vm] [data-cell]")).to_have_count(weights.Vm.size)
        if turn == 0:
            page.reload()


def test_W21_names_and_samples_are_shown_as_text(page, folder):
    name = "<img src=x onerror=alert(1)>"
    run = copy_run(folder, name)
    run.add_sample(9, "<script>alert(2)</script>")
    page.goto_view("runs", runs=name)
    expect(page.locator(".sample")).to_have_text("<script>alert(2)</script>")
    assert page.locator(".run-run", has_text=name).count() == 1
    assert page.locator("[data-view='runs'] img, [data-view='runs'] script").count() == 0


def test_the_form_sends_only_changed_settings(page, folder):
    page.goto_view("runs")
    form = page.get_by_role("region", name="Start a training")
    form.get_by_label("recipe").select_option("identity")
    command = form.locator(".command")
    expect(command).to_have_text("clearhead train identity")
    form.locator("[name='training.steps']").fill("70")
    expect(form.locator("[name='training.schedule']")).to_be_hidden()  # one of the other settings
    form.locator("summary", has_text="other settings").click()
    form.locator("[name='training.schedule']").select_option("cosine")
    expect(command).to_have_text(
        "clearhead train identity training.steps=70 training.schedule=cosine"
    )
    assert form.locator("[name='model.d_input']").count() == 0  # the data decide it
    bodies = []

    def answer(route):
        bodies.append(json.loads(route.request.post_data))
        route.fulfill(status=409, json={"error": "another run is being trained", "status": 409})

    page.route("**/api/trainings", answer)
    form.get_by_role("button", name="start training").click()
    expect(form.get_by_role("alert")).to_have_text("another run is being trained")
    changes = {"training.steps": "70", "training.schedule": "cosine"}
    assert bodies == [{"recipe": "identity", "changes": changes}]
    page.expected.append("status of 409")


@contextmanager
def no_training_left(studio):
    """A test that fails must not leave its training to others."""
    try:
        yield
    finally:
        studio.post("/api/trainings/stop", {})


@pytest.mark.slow
def test_a_training_is_started_watched_stopped_and_resumed_on_the_page(page, studio, folder):
    page.goto_view("runs", runs="substring")
    form = page.get_by_role("region", name="Start a training")
    form.get_by_label("recipe").select_option("substring")
    for section in ("other settings", "model", "data"):
        form.locator("summary", has_text=section).click()
    form.locator("[name='training.lr']").fill("fast")
    form.get_by_role("button", name="start training").click()
    runs = page.get_by_role("region", name="Runs", exact=True)
    expect(runs.get_by_role("alert")).to_have_text("training.lr must be a number, got 'fast'")
    form.locator("[name='training.lr']").fill("0.01")
    for change in [*SMALL, "training.steps=1000000"]:
        name, value = change.split("=")
        form.locator(f"[name='{name}']").fill(value)
    with no_training_left(studio):
        form.get_by_role("button", name="start training").click()
        state = runs.locator(".state.running")
        expect(state).to_have_count(1)
        id = runs.locator("tr:has(.state.running)").get_attribute("data-run")
        expect(form.get_by_role("button", name="start training")).to_be_disabled()
        for turn in range(2):
            expect(page.locator(f".run-last tr[data-run='{id}'] td").nth(1)).not_to_have_text("–")
            runs.get_by_role("button", name=f"stop {id}").click()
            expect(runs.locator(".training-words")).to_contain_text("everything is saved")
            check_numbers(page, id, RunFolder(folder / id).read_metrics())
            if turn == 0:
                runs.get_by_role("button", name=f"resume {id}").click()
                expect(state).to_have_count(1)
