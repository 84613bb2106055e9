"""Pictures: what is drawn, with which names and scales, and how it is saved."""

import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image
from torch import Tensor

from clearhead.attention import Mask, MultiHeadAttention
from clearhead.inspection import (
    Picture,
    alignment,
    attention_grid,
    attention_map,
    class_token_overlay,
    mask_picture,
    position_table,
    position_waves,
    record,
    toeplitz_matrices,
)
from clearhead.inspection.matrices import readable_token
from clearhead.inspection.picture import panels, style
from clearhead.layers import Block, Stack
from clearhead.positions import AlibiBias, ToeplitzBias, sinusoid_table

B, H, T, S = 2, 3, 5, 7
WORDS = ["the", "$x_1$", "<b>", "grüße", "漢字", " ", "\n"]


def weights(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).softmax(-1)


def shown(picture: Picture, panel: int = 0) -> np.ndarray:
    return np.asarray(picture.figure.axes[panel].images[0].get_array())


def names(picture: Picture, panel: int = 0) -> tuple[list[str], list[str]]:
    axes = picture.figure.axes[panel]
    return tuple([text.get_text() for text in a.get_ticklabels()] for a in (axes.yaxis, axes.xaxis))


EVERY_PICTURE: dict[str, Callable[[], Picture]] = {
    "attention_map": lambda: attention_map(weights(S, S), tokens=WORDS),
    "attention_grid": lambda: attention_grid([weights(B, H, S, S)] * 2, tokens=WORDS),
    "alignment": lambda: alignment(weights(T, S), WORDS, WORDS[:T]),
    "class_token_overlay": lambda: class_token_overlay(torch.rand(3, 8, 12), weights(2, 3)),
    "mask_picture": lambda: mask_picture(Mask.causal(), S, tokens=WORDS),
    "position_waves": lambda: position_waves(9, (0, 1, 8), 11),
    "position_table": lambda: position_table(9, 11),
    "toeplitz_matrices": lambda: toeplitz_matrices(ToeplitzBias(H, T), T),
}


def test_matplotlib_is_imported_when_something_is_drawn_and_pyplot_never() -> None:
    code = """if True:
        import sys, torch, clearhead.inspection
        print("matplotlib" in sys.modules)
        clearhead.inspection.attention_map(torch.ones(1, 1))._repr_html_()
        print("matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_drawing_leaves_matplotlibs_settings_alone() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    attention_map(weights(T, S))._repr_html_()
    assert dict(matplotlib.rcParams) == before


# Saving


@pytest.mark.parametrize("name", EVERY_PICTURE)
def test_every_picture_saves_as_png_and_svg(name: str, tmp_path: Path) -> None:
    picture = EVERY_PICTURE[name]()
    png = picture.save(tmp_path / "new" / "folder" / "one.png")
    svg = picture.save(str(tmp_path / "one.SVG"))
    assert png == tmp_path / "new" / "folder" / "one.png"
    assert png.read_bytes().startswith(b"\x89PNG")
    assert xml.etree.ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["folder", "new", "one.SVG", "one.png"]


def test_a_picture_shows_itself_in_a_notebook_and_needs_no_network() -> None:
    picture = attention_map(weights(S, S), tokens=WORDS)
    picture.description = "<b>"
    page = picture._repr_html_()
    assert page.startswith("<img alt=")
    assert 'src="data:image/png;base64,' in page
    assert "http" not in page
    assert "<b>" not in page


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path must end in .png, .svg or .pdf, got 'map.gif'"):
        attention_map(weights(T, S)).save(tmp_path / "map.gif")


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_the_same_picture_is_the_same_file(tmp_path: Path, form: str) -> None:
    files = [
        attention_map(weights(T, S)).save(tmp_path / f"{i}.{form}").read_bytes() for i in range(2)
    ]
    assert files[0] == files[1]
    assert files[0].startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF-"}[form])


def read_size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG, by its standard."""
    head = path.read_bytes()[16:24]
    return int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")


def test_dpi_is_the_number_of_pixels_per_inch(tmp_path: Path) -> None:
    picture = attention_map(weights(T, S))
    small, large = (read_size(picture.save(tmp_path / "a.png", dpi=dpi)) for dpi in (80, 240))
    assert large[0] == pytest.approx(3 * small[0], abs=3)
    assert large[1] == pytest.approx(3 * small[1], abs=3)
    for dpi in (0, 1.5, 5000):
        with pytest.raises((TypeError, ValueError), match="dpi must be"):
            picture.save(tmp_path / "a.png", dpi=dpi)


def test_one_panel_is_saved_alone(tmp_path: Path) -> None:
    with panels(6, 2, columns=2) as (figure, (left, right)):
        left.set_facecolor("red")
        right.set_facecolor("blue")
    picture = Picture(figure, "two")
    whole = read_size(picture.save(tmp_path / "whole.png"))
    for number, colour in enumerate(((255, 0, 0), (0, 0, 255))):
        path = picture.save(tmp_path / "panel.png", panel=number)
        assert read_size(path)[0] < 0.6 * whole[0]
        image = Image.open(path).convert("RGB")
        assert image.getpixel((image.width // 2, image.height // 2)) == colour
    with pytest.raises(ValueError, match=r"panel must be a number from 0 to 1: .* has 2, got 2"):
        picture.save(tmp_path / "panel.png", panel=2)
    assert read_size(picture.save(tmp_path / "again.png")) == whole


def test_a_scale_of_colour_is_no_panel() -> None:
    assert len(attention_map(weights(T, S)).panels) == 1


def test_a_failed_save_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = attention_map(weights(T, S)).save(tmp_path / "map.png")
    old = path.read_bytes()

    def full_disk(file: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="no space left"):
        attention_map(weights(S, S)).save(path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


# Attention


def test_a_map_shows_the_chosen_head_of_the_chosen_element() -> None:
    four = weights(B, H, T, S)
    np.testing.assert_array_equal(shown(attention_map(four, head=2, batch=1)), four[1, 2].numpy())
    np.testing.assert_array_equal(shown(attention_map(four[0], head=-1)), four[0, 2].numpy())
    np.testing.assert_allclose(shown(attention_map(four, head="mean")), four[0].mean(0), rtol=1e-6)


def test_weights_have_one_scale_from_0_to_1() -> None:
    for picture in (attention_map(weights(T, S) / 10), attention_grid([weights(B, H, T, S) / 10])):
        assert picture.figure.axes[0].images[0].get_clim() == (0, 1)
        assert picture.figure.axes[-1].get_ylabel() == "attention weight"
    assert attention_map(weights(T, S), top=0.1).figure.axes[0].images[0].get_clim() == (0, 0.1)


def test_colours_grow_darker_with_the_number_also_in_grey() -> None:
    image = attention_map(weights(T, S)).figure.axes[0].images[0]
    grey = image.get_cmap()(np.linspace(0, 1, 50))[:, :3] @ [0.299, 0.587, 0.114]
    assert (np.diff(grey) < 0).all()
    image = position_table(9, 11).figure.axes[0].images[0]
    grey = image.get_cmap()(np.linspace(0, 1, 50))[:, :3] @ [0.299, 0.587, 0.114]
    assert (np.diff(grey) > 0).all()


def test_axes_say_what_they_are() -> None:
    axes = attention_map(weights(T, S)).figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key (attended to)", "query (attends)")


def test_tokens_name_all_keys_and_the_last_queries() -> None:
    queries, keys = names(attention_map(weights(T, S), tokens=list("abcdefg")))
    assert (queries, keys) == (list("cdefg"), list("abcdefg"))


def test_source_tokens_name_the_keys() -> None:
    picture = attention_map(weights(T, S), tokens=list("abcde"), source_tokens=list("tuvwxyz"))
    assert names(picture) == (list("abcde"), list("tuvwxyz"))


def test_tokens_are_text_and_never_mathematics() -> None:
    picture = attention_map(weights(S, S), tokens=WORDS)
    assert names(picture)[1] == ["the", "$x_1$", "<b>", "grüße", "漢字", "␣", "↵"]
    assert not any(text.get_parse_math() for text in picture.figure.axes[0].get_xticklabels())
    assert "$x_1$" in picture._render("svg").decode()


def test_tokens_that_would_break_mathematics_do_not_break_the_picture(tmp_path: Path) -> None:
    bad = ["$\\frac{$", "a$b$c_{", "\x00", "\ud800", "x" * 500, ""]
    attention_map(weights(6, 6), tokens=bad, title="$\\bad{").save(tmp_path / "a.svg")
    xml.etree.ElementTree.parse(tmp_path / "a.svg")
    attention_grid({"$_{": weights(1, 1, 6, 6)}, tokens=bad).save(tmp_path / "b.png")


def test_readable_token() -> None:
    assert readable_token("a b") == "a b"
    assert readable_token("\x1b[31m") == "\\x1b[31m"
    assert readable_token("x" * 30) == "x" * 23 + "…"
    assert readable_token(7) == "7"


def test_long_sequences_have_fewer_labels_in_their_right_places() -> None:
    picture = attention_map(weights(300, 300), tokens=[str(i) for i in range(300)])
    axes = picture.figure.axes[0]
    labels = names(picture)[1]
    assert 10 < len(labels) < 80
    assert [int(label) for label in labels] == axes.get_xticks().tolist()


def test_small_maps_have_their_numbers_written_in() -> None:
    texts = attention_map(torch.tensor([[0.25, 0.75], [0.001, 0.999]])).figure.axes[0].texts
    assert [text.get_text() for text in texts] == [".25", ".75", "1.00"]
    assert not attention_map(weights(60, 60)).figure.axes[0].texts


def test_nan_is_shown_in_a_colour_of_its_own() -> None:
    image = attention_map(torch.tensor([[torch.nan, 0.0], [1.0, 0.5]])).figure.axes[0].images[0]
    colours = image.get_cmap()(image.norm(image.get_array()))
    np.testing.assert_allclose(colours[0, 0, :3], [213 / 255, 94 / 255, 0])


def test_a_grid_has_a_row_for_each_layer_and_a_column_for_each_head() -> None:
    layers = [weights(B, H, T, S), weights(B, 2, T, S).flip(-1)]
    picture = attention_grid(layers, batch=1, tokens=list("abcdefg"))
    panels = picture.figure.axes[:6]
    np.testing.assert_array_equal(shown(picture, 1), layers[0][1, 1].numpy())
    np.testing.assert_array_equal(shown(picture, 4), layers[1][1, 1].numpy())
    assert not panels[5].axison
    assert [panel.get_title() for panel in panels[:3]] == ["head 0", "head 1", "head 2"]
    assert [panels[0].get_ylabel(), panels[3].get_ylabel()] == ["layer 0\nquery", "layer 1\nquery"]
    assert panels[1].get_ylabel() == ""
    assert panels[0].get_xlabel() == ""
    assert panels[3].get_xlabel() == "key"


def test_a_grid_draws_a_trace_by_its_names() -> None:
    stack = Stack([Block(12, H) for _ in range(2)])
    with record(stack) as trace:
        stack(torch.randn(B, T, 12))
    picture = attention_grid(trace, tokens=list("abcde"))
    assert picture.figure.axes[0].get_ylabel() == "blocks.0.attention\nquery"
    np.testing.assert_array_equal(
        shown(picture, 3), trace["blocks.1.attention"].weights[0, 0].numpy()
    )


def test_plain_arrays_of_any_library_are_accepted() -> None:
    one = weights(B, H, T, S)
    np.testing.assert_allclose(shown(attention_grid([one.double().numpy()]), 2), one[0, 2].numpy())
    np.testing.assert_allclose(shown(attention_grid((one.bfloat16(),)), 2), one[0, 2], atol=1e-2)
    np.testing.assert_allclose(shown(attention_map(one[0, 0].tolist())), one[0, 0], rtol=1e-6)
    attention_map(one[0, 0].clone().requires_grad_())


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (1, 1)])
def test_empty_and_single_sizes_draw(shape: tuple[int, int]) -> None:
    attention_map(torch.ones(*shape))._repr_html_()
    attention_grid([torch.ones(1, 2, *shape)])._repr_html_()


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="tokens has 3 entries but the weights have 7 keys"):
        attention_map(weights(T, S), tokens=list("abc"))
    with pytest.raises(ValueError, match="tokens has 7 entries but the weights have 5 queries"):
        attention_map(weights(T, S), tokens=list("abcdefg"), source_tokens=list("abcdefg"))
    with pytest.raises(ValueError, match="source_tokens has 1 entries but the weights have 7 keys"):
        attention_map(weights(T, S), source_tokens=["a"])
    with pytest.raises(
        ValueError, match="7 queries look at 5 other tokens; name those by source_tokens"
    ):
        attention_map(weights(S, T), tokens=list("abcdefg"))
    with pytest.raises(
        TypeError, match="tokens must be a list of tokens, got the string 'abcdefg'"
    ):
        attention_map(weights(T, S), tokens="abcdefg")
    with pytest.raises(ValueError, match="have 3 heads; choose head=0 … 2 or head='mean'"):
        attention_map(weights(B, H, T, S))
    with pytest.raises(IndexError, match=r"head=3 does not exist: weights .* have 3 heads"):
        attention_map(weights(B, H, T, S), head=3)
    with pytest.raises(IndexError, match="batch=2 does not exist"):
        attention_grid([weights(B, H, T, S)], batch=2)
    with pytest.raises(ValueError, match="one size, got 5 × 7 in 'layer 0' and 5 × 5 in 'layer 1'"):
        attention_grid([weights(B, H, T, S), weights(B, H, T, T)])
    with pytest.raises(ValueError, match=r"weights must have shape \(T, S\).*got \(5,\)"):
        attention_map(weights(5))


def test_alignment_has_target_rows_and_source_columns() -> None:
    picture = alignment(weights(2, 3), ["a", "b", "c"], ["x", "y"])
    axes = picture.figure.axes[0]
    assert names(picture) == (["x", "y"], ["a", "b", "c"])
    assert axes.xaxis.get_label_position() == "top"
    with pytest.raises(ValueError, match="target_tokens has 3 entries but the weights have 2 rows"):
        alignment(weights(2, 3), ["a", "b", "c"], ["x", "y", "z"])
    with pytest.raises(
        ValueError, match="source_tokens has 2 entries but the weights have 3 columns"
    ):
        alignment(weights(2, 3), ["a", "b"], ["x", "y"])


def test_class_token_overlay_has_a_row_for_each_image() -> None:
    heat = weights(2, 4, 3)
    picture = class_token_overlay(torch.rand(2, 3, 16, 12), heat)
    assert len(picture.figure.axes) == 4
    np.testing.assert_array_equal(shown(picture, 3), heat[1].numpy())
    with pytest.raises(
        ValueError, match=r"image must have shape \(3, height, width\), got \(8, 8\)"
    ):
        class_token_overlay(torch.rand(8, 8), weights(2, 2))
    with pytest.raises(ValueError, match=r"heat must have shape .* got \(2, 4, 3\) for 1 images"):
        class_token_overlay(torch.rand(3, 8, 8), heat)


def test_the_look_of_a_map_does_not_depend_on_the_brightness_of_the_picture() -> None:
    """A random map beside a picture: its drawn brightness follows the map and not the ink."""
    heat = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))
    drawn = []
    for image in (torch.zeros(1, 8, 8), torch.ones(1, 8, 8), torch.rand(1, 8, 8)):
        figure = class_token_overlay(image, heat).figure
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        left, right = (axes.get_window_extent() for axes in figure.axes)
        assert left.x1 < right.x0  # beside each other
        assert len(figure.axes[1].images) == 1
        pixels = np.asarray(canvas.buffer_rgba())
        drawn.append(pixels[:, int((left.x1 + right.x0) / 2) :])
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])


# Masks and positions


def test_a_mask_is_drawn_as_it_is() -> None:
    np.testing.assert_array_equal(shown(mask_picture(Mask.causal(), 3)), np.tril(np.ones((3, 3))))
    np.testing.assert_array_equal(shown(mask_picture(torch.eye(3, 4) > 0, 3, 4)), np.eye(3, 4))


def test_a_mask_has_a_panel_for_each_batch_element() -> None:
    picture = mask_picture(Mask.padding(torch.tensor([1, 3])), 2, 3)
    panels = picture.figure.axes
    assert [panel.get_title() for panel in panels] == ["element 0", "element 1"]
    np.testing.assert_array_equal(shown(picture, 0), [[1, 0, 0], [1, 0, 0]])
    by_head = mask_picture(torch.ones(1, 2, 3, 3) > 0, 3)
    assert [panel.get_title() for panel in by_head.figure.axes] == [
        "element 0, head 0",
        "element 0, head 1",
    ]


def test_waves_are_the_columns_of_the_table() -> None:
    axes = position_waves(20, (4, 7), 60).figure.axes[0]
    table = sinusoid_table(60, 20).numpy()
    assert [line.get_label() for line in axes.lines] == ["dimension 4 (sin)", "dimension 7 (cos)"]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), table[:, 4])
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), table[:, 7])
    assert axes.lines[0].get_linestyle() != axes.lines[1].get_linestyle()
    assert axes.get_xlabel() == "position (tokens)"


@pytest.mark.parametrize("n", [2, 4, 6, 9])
def test_the_legend_of_waves_is_inside_the_axes_above_all_lines(n) -> None:
    picture = position_waves(20, range(n), 60)
    with style():
        picture.figure.draw_without_rendering()
    (axes,) = picture.figure.axes
    box, panel = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert panel.x0 <= box.x0 < box.x1 <= panel.x1
    assert box.y1 <= panel.y1
    tops = [axes.transData.transform((0, line.get_ydata().max()))[1] for line in axes.lines]
    assert max(tops) <= box.y0
    assert max(axes.get_yticks()) == 1
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == n


def test_a_finished_table_may_be_given() -> None:
    table = torch.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(shown(position_table(table)), table.numpy())
    lines = position_waves(table, [1]).figure.axes[0].lines
    np.testing.assert_array_equal(lines[0].get_ydata(), [1, 4, 7, 10])
    assert lines[0].get_label() == "dimension 1"


def test_the_whole_table_has_a_row_for_each_position() -> None:
    picture = position_table(9, 11)
    np.testing.assert_array_equal(shown(picture), sinusoid_table(11, 9).numpy())
    assert picture.figure.axes[0].images[0].get_clim() == (-1, 1)


def test_an_unknown_dimension_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"dimensions has \[20\] but d_model is 20: they go from 0 to 19"
    ):
        position_waves(20, (4, 20))
    with pytest.raises(ValueError, match="d_model must be at least 1, got 0"):
        position_table(0)
    with pytest.raises(
        ValueError, match=r"a table must have shape \(positions, d_model\), got \(3,\)"
    ):
        position_table(torch.ones(3))


def test_toeplitz_matrices_of_a_module_and_of_a_tensor() -> None:
    bias = ToeplitzBias(H, 9)
    torch.nn.init.normal_(bias.weight)
    picture = toeplitz_matrices(bias, T)
    matrix = shown(picture, 1)
    np.testing.assert_array_equal(matrix, bias(T)[1].detach().numpy())
    np.testing.assert_array_equal(matrix[1:, 1:], matrix[:-1, :-1])
    low, high = picture.figure.axes[0].images[0].get_clim()
    assert low == -high == pytest.approx(-bias(T).abs().max().item())


def test_the_biases_of_alibi_have_a_scale_each_that_ends_at_0() -> None:
    bias = AlibiBias(4)(6)
    figure = toeplitz_matrices(bias).figure
    limits = [axes.images[0].get_clim() for axes in figure.axes if axes.images]
    assert len(figure.axes) == 4 + 4
    assert limits == [(pytest.approx(bias[head].min().item()), 0.0) for head in range(4)]


def test_a_bias_that_is_no_stack_of_matrices_is_refused() -> None:
    with pytest.raises(ValueError, match=r"bias must have shape \(H, T, S\)"):
        toeplitz_matrices(torch.ones(3, 3))


def test_multi_head_attention_can_be_drawn_in_two_lines() -> None:
    attention = MultiHeadAttention(12, H)
    with record(attention) as trace:
        attention(torch.randn(B, T, 12), mask=Mask.causal())
    picture = attention_map(trace[""].weights, head=1)
    assert (np.triu(shown(picture), 1) == 0).all()
