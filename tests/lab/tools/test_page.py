"""All findings on one page."""

import re

import pytest

from clearhead.lab import attention
from clearhead.lab.tools.finding import Finding, Table
from clearhead.lab.tools.page import write_page, write_slides


@pytest.fixture(scope="module")
def picture():
    return attention.experiment().picture


def a_finding(picture, claim="It is <so>."):
    table = Table("In <metres>", ["d", "length"], [["a & b", 12.345], [1024, 0.5]])
    return Finding(claim, [table], "One was <seen>. Two were not.", {"x": 1.0}, picture)


def test_a_page_contains_each_finding_and_its_picture(picture, tmp_path):
    findings = {"one": a_finding(picture), "two": a_finding(picture, "Another claim.")}
    path = write_page(findings, tmp_path / "new" / "index.html")
    text = path.read_text()
    assert text.count("data:image/png;base64,") == 2
    for name in findings:
        assert f'<section id="{name}">' in text
        assert f'<a href="#{name}">' in text
        assert f"clearhead lab {name}" in text
    assert "<td>a &amp; b</td><td>12.3</td>" in text
    assert "<td>1,024</td><td>0.500</td>" in text
    assert "In &lt;metres&gt;" in text
    assert "One was &lt;seen&gt;. Two were not." in text


def test_a_page_loads_nothing(picture, tmp_path):
    text = write_page({"one": a_finding(picture)}, tmp_path / "index.html").read_text()
    slides = write_slides({"one": a_finding(picture)}, tmp_path / "slides.html").read_text()
    assert not re.search(r"https?://|<script|<link|@import|url\(", text + slides)
    assert "<title>It is &lt;so&gt;.</title>" in slides
