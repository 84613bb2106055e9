"""clearhead lab: one experiment, or all of them on one page."""

import json

import pytest
from matplotlib.figure import Figure

from clearhead import lab
from clearhead.inspection.picture import Picture
from clearhead.lab.tools.finding import Finding, Table


@pytest.fixture(scope="module")
def picture():
    """A small one: `all` writes it twice for each experiment."""
    return Picture(Figure((1, 1)), "an empty square")


def a_finding(picture, claim, numbers):
    table = Table("In <metres>", ["d", "length"], [[1024, 0.5]])
    return Finding(claim, [table], "One was <seen>. Two were not.", numbers, picture)


@pytest.fixture
def quick(monkeypatch, picture):
    """Experiments that take no time."""

    def run(name, **how):
        return a_finding(picture, f"The claim of {name}.", {"seed": how["seed"]})

    monkeypatch.setattr("clearhead.cli.lab.run", run)


def test_all_writes_a_page_and_every_picture_twice(run, quick, tmp_path):
    code, out, err = run("lab", "all", "--out", tmp_path, "--threads", 1)
    assert code == 0, err
    assert out == f"page: {tmp_path / 'index.html'}\n"
    text = (tmp_path / "index.html").read_text()
    for name in lab.EXPERIMENTS:
        assert f"The claim of {name}." in text
        assert {path.suffix for path in tmp_path.glob(f"{name}.*")} == {".png", ".svg"}
    assert [line.split(":")[0] for line in err.splitlines()] == list(lab.EXPERIMENTS)


def test_all_as_json_is_one_object(run, quick, tmp_path):
    code, out, err = run("lab", "all", "--json", "--seed", 7, "--out", tmp_path, "--threads", 1)
    assert (code, err) == (0, "")
    assert json.loads(out)["numbers"] == {name: {"seed": 7} for name in lab.EXPERIMENTS}


def test_one_experiment_says_its_claim_its_numbers_and_where_its_picture_is(run, quick, tmp_path):
    code, out, _ = run("lab", "masks", "--out", tmp_path, "--threads", 1)
    assert code == 0
    assert out.startswith("The claim of masks.\n\nIn <metres>\n")
    assert "One was <seen>. Two were not.\n" in out
    assert out.endswith(f"picture: {tmp_path / 'masks.png'}\n")
    assert (tmp_path / "masks.svg").exists()


@pytest.mark.parametrize("name", ["masks", "all"])
def test_slides_are_written_if_asked_for(run, quick, tmp_path, name):
    slides = tmp_path / f"{name}-slides.html"
    code, out, _ = run("lab", name, "--slides", "--out", tmp_path, "--threads", 1)
    assert code == 0
    assert out.endswith(f"{slides}\n")
    shown = lab.EXPERIMENTS if name == "all" else [name]
    text = slides.read_text()
    assert text.count('<section class="slide">') == 4 * len(shown)
    assert all(f"<h1>The claim of {each}.</h1>" in text for each in shown)
    _, out, _ = run("lab", name, "--slides", "--json", "--out", tmp_path, "--threads", 1)
    assert json.loads(out)["slides"] == str(slides)


@pytest.mark.parametrize("full", [True, False])
def test_full_reaches_the_experiment(run, monkeypatch, picture, tmp_path, full):
    given = []
    monkeypatch.setattr(
        "clearhead.lab.attention.experiment",
        lambda **how: given.append(how) or a_finding(picture, "So.", {}),
    )
    options = ["--full"] if full else []
    assert run("lab", "attention", *options, "--out", tmp_path, "--threads", 1)[0] == 0
    assert given[0]["full"] is full
