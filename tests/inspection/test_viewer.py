"""The page to walk through attention: whole, alone, and safe whatever the tokens are."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from clearhead.attention import MultiHeadAttention
from clearhead.inspection import attention_view, record
from clearhead.inspection.viewer import MAX_WEIGHTS

B, H, T, S = 2, 3, 5, 7

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "{{data}}{{title}}",
    "\"'&\\u003c",
    "\u2028\ud800\x00",
    "漢字",
]


def weights(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).softmax(-1)


def data_of(page: str) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_holds_every_weight_to_four_digits() -> None:
    layers = [weights(B, H, T, S), weights(B, 2, T, S).flip(-1)]
    data = data_of(attention_view(layers, list("abcdefg"), batch=1).page)
    assert data["queries"] == list("cdefg")
    assert data["keys"] == list("abcdefg")
    assert [layer["name"] for layer in data["layers"]] == ["layer 0", "layer 1"]
    for layer, tensor in zip(data["layers"], layers, strict=True):
        given = np.array(layer["heads"]).reshape(-1, T, S) / 10_000
        np.testing.assert_allclose(given, tensor[1].numpy(), atol=0.00005001)


def test_a_trace_and_names_and_arrays_are_accepted() -> None:
    attention = MultiHeadAttention(12, H)
    with record(attention) as trace:
        attention(torch.randn(B, T, 12))
    assert data_of(attention_view(trace, list("abcde")).page)["layers"][0]["name"] == "attention"
    plain = attention_view([trace[""].weights.numpy()], list("abcde"), names=["mine"])
    assert data_of(plain.page)["layers"][0]["name"] == "mine"


def test_the_page_loads_nothing() -> None:
    page = attention_view([weights(1, 1, 2, 2)], ["a", "b"]).page
    assert "http:" not in page
    assert "https:" not in page
    assert "default-src 'none'" in page
    assert not any({"src", "href"} & set(attributes) for _, attributes in Tags(page).found)


def test_tokens_names_and_title_are_text_whatever_they_hold() -> None:
    n = len(HOSTILE)
    plain = attention_view([weights(1, 1, n, n)], ["a"] * n, title="x")
    hostile = attention_view([weights(1, 1, n, n)], HOSTILE, names=HOSTILE[:1], title=HOSTILE[0])
    tags = [[tag for tag, _ in Tags(view.page).found] for view in (plain, hostile)]
    assert tags[0] == tags[1]
    data = data_of(hostile.page)
    assert data["keys"][2:5] == [HOSTILE[2][:23] + "…", HOSTILE[3], HOSTILE[4]]
    assert data["keys"][5] == "\\u2028\\ud800\\x00"
    assert data["layers"][0]["name"] == HOSTILE[0]


def test_weights_that_are_not_finite_are_null() -> None:
    data = data_of(
        attention_view([torch.tensor([[[[torch.nan, torch.inf], [-0.5, 1.0]]]])], ["a", "b"]).page
    )
    assert data["layers"][0]["heads"][0] == [None, None, -5000, 10000]


def test_in_a_notebook_it_is_a_frame_of_its_own() -> None:
    view = attention_view([weights(1, 1, 2, 2)], ['"><b>', "b"])
    ((tag, attributes),) = Tags(view._repr_html_()).found
    assert tag == "iframe"
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["srcdoc"] == view.page
    assert html.unescape(html.escape(view.page)) == view.page


def test_save_writes_one_file(tmp_path: Path) -> None:
    view = attention_view([weights(1, 1, 2, 2)], ["a", "漢"])
    path = view.save(tmp_path / "new" / "view.html")
    assert path.read_text("utf-8") == view.page
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(ValueError, match=r"path must end in .html, got 'view.png'"):
        view.save(tmp_path / "view.png")


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="tokens has 2 entries but the weights have 7 keys"):
        attention_view([weights(B, H, T, S)], ["a", "b"])
    with pytest.raises(IndexError, match="batch=2 does not exist: the layers have 2 elements"):
        attention_view([weights(B, H, T, S)], list("abcdefg"), batch=2)
    many = torch.zeros(1, 1, 1, 1).expand(1, 2, 1500, 1500)
    with pytest.raises(
        ValueError, match=f"layers hold 4,500,000 weights but .* at most {MAX_WEIGHTS:,}; ask"
    ):
        attention_view([many], ["a"] * 1500)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
def test_the_page_works_when_its_script_runs(tmp_path: Path) -> None:
    one = torch.tensor(
        [[[[1, 0, 0], [0.25, 0.75, 0], [0, 0.5, 0.5]], [[1, 0, 0], [0, 1, 0], [0.2, 0.3, 0.5]]]]
    )
    path = attention_view([one, one.flip(-1)], ["<b>", "</script>", "c"]).save(
        tmp_path / "view.html"
    )
    stub = Path(__file__).with_name("page_stub.js")
    done = subprocess.run(
        ["node", str(stub), str(path)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    seen = json.loads(done.stdout)
    assert seen["queries"] == ["<b>", "</script>", "c"]
    assert (
        seen["start"]["lines"] == 1 + 2 + 3
    )  # each pair of tokens with some weight in the mean of heads
    assert seen["start"]["words"].startswith("Point at a query")
    assert seen["colours"] == ["rgb(8,48,107)", "rgb(158,202,255)"]  # in light, then in dark
    assert seen["pointed"]["keys"] == ["<b> 0.1000", "</script> 0.4000", "c 0.5000"]
    assert seen["pointed"]["words"] == (
        "c (query 2) attends most to: c 0.5000,  </script> 0.4000,  <b> 0.1000"
    )
    assert seen["pointed"]["lines"] == 3
    assert seen["left"] == seen["start"]
    assert seen["arrow"]["words"].startswith(
        "</script> (query 1) attends most to: </script> 0.8750"
    )
    assert seen["chosen"]["head"] == "1"
    assert seen["chosen"]["keys"] == ["<b> 0.0000", "</script> 1.0000", "c 0.0000"]
    assert seen["mean"]["keys"] == ["<b> 0.0000", "</script> 0.8750", "c 0.1250"]
