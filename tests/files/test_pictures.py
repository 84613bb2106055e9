"""PNG and JPEG pictures as tensors; every other format is refused."""

import io
import resource
import struct
import time
import warnings
import zlib

import numpy
import pytest
import torch
from PIL import Image

from clearhead.files import BadFile, pictures
from clearhead.files.pictures import fit_picture, read_picture

RED, GREEN, BLUE = (250, 10, 20), (15, 240, 30), (5, 25, 230)


def picture_of(rows, mode="RGB"):
    """A picture from rows of pixels."""
    image = Image.new(mode, (len(rows[0]), len(rows)))
    image.putdata([pixel for row in rows for pixel in row])
    return image


def encoded(image, form="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def chunk(kind, data):
    return struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data))


def png_header(width, height, depth=8, colour=2):
    """A PNG of this size with no pixels in it."""
    header = struct.pack(">LLBBBBB", width, height, depth, colour, 0, 0, 0)
    end = chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + end


@pytest.fixture
def read(tmp_path):
    """The picture in these bytes, under any name."""

    def read(data, name="x.png"):
        (tmp_path / name).write_bytes(data)
        return read_picture(tmp_path / name)

    return read


def test_channels_rows_and_columns_stand_in_this_order(read):
    found = read(encoded(picture_of([[RED, GREEN, BLUE], [BLUE, BLUE, RED]])))
    assert (found.dtype, found.shape, found.is_contiguous()) == (torch.uint8, (3, 2, 3), True)
    assert found[:, 0, 0].tolist() == list(RED)
    assert found[:, 0, 2].tolist() == list(BLUE)
    assert found[:, 1, 2].tolist() == list(RED)
    found += 1  # own memory, may be written


def test_F16_a_jpeg_is_read_whatever_its_name(read):
    data = encoded(Image.new("RGB", (9, 4), RED), "JPEG", quality=95)
    for name in ("x.jpg", "x.png", "x.txt", "x"):
        found = read(data, name)
        assert found.shape == (3, 4, 9)
        assert (found[:, 2, 5].int() - torch.tensor(RED)).abs().max() <= 6


def test_F16_one_pixel_is_a_picture(read):
    assert read(encoded(picture_of([[GREEN]]))).flatten().tolist() == list(GREEN)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (picture_of([[7, 200]], "L"), [(7,) * 3, (200,) * 3]),
        (picture_of([[0, 255]], "1"), [(0,) * 3, (255,) * 3]),
        (picture_of([[(*RED, 255), (*RED, 0)]], "RGBA"), [RED, (255,) * 3]),
        (picture_of([[(100, 255), (100, 0)]], "LA"), [(100,) * 3, (255,) * 3]),
        (picture_of([[0x1234, 0xFFFF]], "I;16"), [(0x12,) * 3, (255,) * 3]),
        (picture_of([[RED, BLUE]]).quantize(4), [RED, BLUE]),
    ],
    ids=["grey", "black and white", "alpha", "grey alpha", "16 bits", "palette"],
)
def test_F16_every_kind_becomes_red_green_and_blue(read, image, expected):
    found = read(encoded(image))
    assert found.permute(1, 2, 0).reshape(-1, 3).tolist() == [list(colour) for colour in expected]


def test_F16_half_transparent_lies_on_white(read):
    found = read(encoded(picture_of([[(100, 0, 200, 51)]], "RGBA"))).flatten().tolist()
    assert found == [pytest.approx(255 + (c - 255) * 51 / 255, abs=1) for c in (100, 0, 200)]


def test_F16_a_transparent_colour_of_a_palette_or_of_grey_is_white(read):
    image = picture_of([[RED, BLUE]]).quantize(4)
    data = encoded(image, transparency=image.getpixel((0, 0)))
    assert read(data)[:, 0].T.tolist() == [[255] * 3, list(BLUE)]
    data = encoded(picture_of([[7, 9]], "L"), transparency=7)
    assert read(data)[:, 0].T.tolist() == [[255] * 3, [9] * 3]


def test_F16_sixteen_bits_a_colour_keep_the_upper_eight(read):
    rows = b"\0" + struct.pack(">6H", 0x12FF, 0xABCD, 0x0001, 0xFFFF, 0x8000, 0x7FFF)
    data = png_header(2, 1, depth=16).replace(
        chunk(b"IDAT", zlib.compress(b"")), chunk(b"IDAT", zlib.compress(rows))
    )
    assert read(data)[:, 0].T.tolist() == [[0x12, 0xAB, 0x00], [0xFF, 0x80, 0x7F]]


def test_F16_cmyk_becomes_light(read):
    data = encoded(Image.new("CMYK", (8, 8), (255, 0, 0, 0)), "JPEG", quality=95)
    red, green, blue = read(data)[:, 4, 4].tolist()
    assert red < 20
    assert min(green, blue) > 235


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_F16_a_turned_picture_is_shown_upright(read, turn, form):
    """Orientation n says how the stored picture must be turned; each turn is undone here."""
    upright = numpy.zeros((16, 32, 3), dtype="uint8")
    upright[:8, :16] = RED  # the top left quarter tells all eight apart
    upright[8:, :16] = BLUE
    stored = {
        1: lambda x: x,
        2: lambda x: x[:, ::-1],
        3: lambda x: x[::-1, ::-1],
        4: lambda x: x[::-1],
        5: lambda x: x.transpose(1, 0, 2),
        6: lambda x: numpy.rot90(x, 1),
        7: lambda x: x[::-1, ::-1].transpose(1, 0, 2),
        8: lambda x: numpy.rot90(x, -1),
    }[turn](upright)
    image = Image.fromarray(numpy.ascontiguousarray(stored))
    exif = Image.Exif()
    exif[0x0112] = turn
    found = read(encoded(image, form, exif=exif)).permute(1, 2, 0)
    assert found.shape == (16, 32, 3)
    assert (
        found.int() - torch.from_numpy(upright).int()
    ).abs().float().mean() < 8  # else 40 and more


# What is refused


@pytest.mark.parametrize("size", [(30_000, 30_000), (1 << 31, 1 << 31), (4097, 4096), (1, 1 << 25)])
def test_F16_a_huge_picture_is_refused_before_it_is_decoded(read, size):
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(
        BadFile, match=r"x\.png has (more than|.* at most) 16,777,216|has more than the 16,777,216"
    ):
        read(png_header(*size))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
    assert time.process_time() - start < 1


def test_F16_a_huge_jpeg_is_refused_before_it_is_decoded(read):
    data = bytearray(encoded(Image.new("RGB", (8, 8)), "JPEG"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", 30_000, 30_000)
    with pytest.raises(BadFile, match=r"x\.png has more than the 16,777,216 pixels"):
        read(bytes(data))


def test_F16_the_cap_is_told_in_pixels(read):
    with pytest.raises(BadFile, match=r"has 4,097 × 4,096 pixels; .* at most 16,777,216 in all"):
        read(png_header(4097, 4096))


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (0, 0)])
def test_F16_a_picture_without_pixels_is_refused(read, size):
    with pytest.raises(BadFile, match=r"x\.png"):
        read(png_header(*size))


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_F16_every_cut_is_refused(read, form):
    noise = numpy.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype="uint8")
    data = encoded(Image.fromarray(noise), form)
    last = len(data) - (12 if form == "PNG" else 2)  # the end marks carry no pixels
    for cut in range(0, last - 8, 61):
        with pytest.raises(BadFile, match=r"x\.png is not a complete PNG or JPEG picture"):
            read(data[:cut])


def test_F16_a_moving_picture_is_refused(read):
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, GREEN, BLUE)]
    data = encoded(frames[0], save_all=True, append_images=frames[1:])
    with pytest.raises(BadFile, match="is animated; save one of its frames"):
        read(data)


def test_F16_of_a_jpeg_with_two_pictures_the_first_is_read(read):
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE)]
    data = encoded(frames[0], "MPO", save_all=True, append_images=frames[1:])
    red, _, blue = read(data)[:, 4, 4].tolist()
    assert red > 200 > blue


@pytest.mark.parametrize("form", ["GIF", "BMP", "TIFF", "WEBP", "ICO", "PPM", "TGA", "EPS", "PDF"])
def test_F16_other_formats_are_refused(read, form):
    words = "is not a complete PNG or JPEG picture: cannot identify image file$"
    with pytest.raises(BadFile, match=words):
        read(encoded(Image.new("RGB", (16, 16), RED), form))


@pytest.mark.parametrize("data", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"<svg/>", b"\xff\xd8\xff"])
def test_F16_what_is_no_picture_is_refused(read, data):
    with pytest.raises(BadFile, match=r"x\.png is not a complete PNG or JPEG picture"):
        read(data)


def test_F16_a_text_that_unpacks_to_much_is_refused(read):
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(b"\0" * (200 << 20)))
    data = encoded(Image.new("RGB", (4, 4)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadFile, match="not a complete PNG"):
        read(data[:33] + text + data[33:])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_F16_a_jpeg_of_endless_passes_is_refused(read):
    data = encoded(Image.new("RGB", (64, 64), RED), "JPEG", progressive=True)
    assert read(data).shape == (3, 64, 64)
    at = data.rindex(b"\xff\xda")
    with pytest.raises(BadFile, match="a JPEG with more than 100 passes"):
        read(data[:at] + data[at:-2] * 101 + data[-2:])


def test_a_warning_is_a_refusal_not_a_line_on_the_screen(read, monkeypatch):
    def warn(*_, **__):
        warnings.warn("Truncated File Read", stacklevel=1)

    monkeypatch.setattr(pictures, "_convert_to_rgb", warn)
    with pytest.raises(BadFile, match="not a complete PNG or JPEG picture: truncated file read"):
        read(encoded(Image.new("RGB", (4, 4))))


def test_a_missing_file_and_a_huge_one_are_one_sentence(tmp_path):
    with pytest.raises(BadFile, match="is not there"):
        read_picture(tmp_path / "none.png")
    with open(tmp_path / "big.png", "wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(BadFile, match=r"big\.png has 1,073,741,824 bytes, more than"):
        read_picture(tmp_path / "big.png")


# Fitted to a model


def test_a_picture_of_the_right_size_stays_as_it_is():
    picture = torch.randint(256, (3, 7, 5), dtype=torch.uint8)
    assert torch.equal(fit_picture(picture, 3, (7, 5)), picture)
    grey = picture[:1].expand(3, -1, -1)
    assert torch.equal(fit_picture(grey, 1, (7, 5)), grey[:1])


def test_other_pictures_are_cut_to_the_middle_and_made_smaller_or_larger():
    wide = torch.zeros(3, 4, 12, dtype=torch.uint8)
    wide[:, :, 4:8] = 200  # the square in the middle
    assert torch.equal(fit_picture(wide, 3, (2, 2)), torch.full((3, 2, 2), 200, dtype=torch.uint8))
    tall = wide.mT.contiguous()
    assert torch.equal(fit_picture(tall, 3, (8, 8)), torch.full((3, 8, 8), 200, dtype=torch.uint8))
    thin = torch.zeros(3, 16, 16, dtype=torch.uint8)
    thin[:, :, ::4] = 200  # lines between the places that four pixels wide would look at
    assert fit_picture(thin, 3, (4, 4))[:, :, 1:3].flatten().tolist() == 24 * [50]
    red = torch.zeros(3, 2, 2, dtype=torch.uint8)
    red[0] = 100
    assert fit_picture(red, 1, (2, 2)).flatten().tolist() == [30, 30, 30, 30]
    assert fit_picture(wide[:, :1, :1], 3, (5, 6)).shape == (3, 5, 6)
