import io
import sys
from contextlib import suppress

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sightline.data.images import MOST_PIXELS, BrokenImage, digest, normalise, read_image, resize_crop
from tests.data.picture_files import bomb, encoded, pixels, png


def read(content, **options):
    return read_image(io.BytesIO(content), **options)


def as_tensor(array):
    return torch.from_numpy(np.array(array)).permute(2, 0, 1)


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats_come_back_as_they_are(form):
    colours = pixels(3)
    image = read(encoded(colours, form))
    assert image.dtype == torch.uint8
    assert image.is_contiguous()
    assert torch.equal(image, as_tensor(colours))


@pytest.mark.parametrize("form", ["JPEG", "WEBP", "GIF", "AVIF"])
def test_other_formats_come_back_nearly(form):
    smooth = np.tile(np.linspace(0, 255, 37, dtype=np.uint8)[:, None, None], (1, 31, 3))
    image = read(encoded(smooth, form)).float()
    assert image.shape == (3, 37, 31)
    assert (image - as_tensor(smooth)).abs().mean() < 4


def test_a_path_reads_as_its_bytes_do(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(png(5))
    assert torch.equal(read_image(path), read(png(5)))


def test_grey_is_three_times_the_same():
    grey = pixels(2)[..., 0]
    image = read(encoded(grey))
    assert all(torch.equal(channel, torch.from_numpy(grey)) for channel in image)


def test_sixteen_bits_are_scaled_not_cut_off():
    deep = np.array([[0, 257, 25_700, 65_535]], dtype=np.uint16)
    assert read(encoded(deep))[0].tolist() == [[0, 1, 100, 255]]


def test_what_is_transparent_lies_on_white():
    red_over = np.array([[[255, 0, 0, 255], [255, 0, 0, 0], [0, 0, 0, 51]]], dtype=np.uint8)
    assert read(encoded(red_over))[:, 0].T.tolist() == [[255, 0, 0], [255, 255, 255], [204, 204, 204]]


def test_grey_with_alpha_and_palette_with_transparency():
    half = Image.merge("LA", [Image.new("L", (3, 2), 10), Image.new("L", (3, 2), 0)])
    assert read(encoded(half)).unique().tolist() == [255]
    palette = Image.new("P", (3, 2), 1)
    palette.putpalette([0, 0, 0, 7, 8, 9])
    assert read(encoded(palette))[:, 0, 0].tolist() == [7, 8, 9]
    assert read(encoded(palette, transparency=1)).unique().tolist() == [255]


def test_cmyk_and_bilevel():
    assert read(encoded(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG")).min() > 250
    assert read(encoded(Image.new("1", (8, 8), 1))).unique().tolist() == [255]


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_cameras_rotation_is_undone(turn):
    upright = Image.fromarray(pixels(1))
    back = {  # what a camera stored, so that the turn brings the upright picture back
        1: None, 2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_270,
    }[turn]  # fmt: skip
    stored = upright if back is None else upright.transpose(back)
    notes = Image.Exif()
    notes[0x0112] = turn
    assert torch.equal(read(encoded(stored, exif=notes)), as_tensor(pixels(1)))


def test_the_first_frame_stands_for_an_animation():
    frames = [Image.new("RGB", (5, 3), colour) for colour in ("red", "blue")]
    assert read(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))[:, 0, 0].tolist() == [
        255,
        0,
        0,
    ]


@given(st.integers(1, 23), st.integers(1, 23), st.integers(1, 17))
def test_a_square_of_any_size_comes_out(height, width, size):
    image = torch.randint(256, (3, height, width), dtype=torch.uint8)
    square = resize_crop(image, size)
    assert square.shape == (3, size, size)
    assert square.dtype == torch.uint8
    assert torch.equal(resize_crop(square, size), square)


def test_the_middle_is_kept():
    image = torch.zeros(3, 7, 19, dtype=torch.uint8)
    image[:, :, 6:13] = 200
    assert resize_crop(image, 7).unique().tolist() == [200]
    assert resize_crop(image.mT, 3).unique().tolist() == [200]


def test_scaling_is_that_of_torch_and_near_pillows():
    colours = pixels(4, 34, 34)
    square = resize_crop(as_tensor(colours), 17)
    direct = F.interpolate(as_tensor(colours)[None].double(), (17, 17), mode="bicubic", antialias=True)
    assert (square - direct[0]).abs().max() <= 0.51 + (direct - direct.clamp(0, 255)).abs().max()
    pillow = Image.fromarray(colours).resize((17, 17), Image.Resampling.BICUBIC)
    assert (square.float() - as_tensor(np.asarray(pillow))).abs().max() <= 2


def test_size_makes_a_square_of_a_large_jpeg():
    smooth = np.tile(np.linspace(0, 255, 601, dtype=np.uint8)[:, None, None], (1, 601, 3))
    small = read(encoded(smooth, "JPEG"), size=29).float()
    assert small.shape == (3, 29, 29)
    assert (small - resize_crop(as_tensor(smooth), 29)).abs().mean() < 3


def test_a_large_jpeg_is_decoded_small_but_not_too_small(monkeypatch):
    decoded = []
    monkeypatch.setattr(
        "sightline.data.images.resize_crop", lambda image, size: decoded.append(image) or image
    )
    read(encoded(pixels(1, 601, 701), "JPEG"), size=101)
    assert decoded[0].shape == (3, 301, 351)  # a half, and still more than twice the size


def test_normalised_bytes():
    images = torch.randint(256, (2, 3, 5, 7), dtype=torch.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    found = normalise(images, mean=mean, std=std)
    for c in range(3):
        torch.testing.assert_close(found[:, c], (images[:, c] / 255.0 - mean[c]) / std[c])
    assert normalise(images).abs().max() <= 1


def test_a_digest_knows_content_and_shape():
    image = torch.arange(24, dtype=torch.uint8).reshape(3, 2, 4)
    assert digest(image) == digest(image.clone())
    assert digest(image) != digest(image.reshape(3, 4, 2))
    assert digest(image) != digest(image.flip(0))
    assert digest(image.flip(0).flip(0)) == digest(image)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "'a.png' is not an image that can be read; it is empty"),
        ("Löwe, not a picture".encode(), "'a.png' is not an image that can be read; it is text"),
        (("x" * 511 + "ö").encode(), "it is text"),
        (bytes(range(200, 256)), "'a.png' is not an image that can be read; save it as JPEG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "it is text"),
        (bomb(), f"an image may have {MOST_PIXELS} pixels, 'a.png' has 900000000; make it smaller"),
        (bomb(11_000), "'a.png' has 121000000"),
        (bomb(8_209), "'a.png' has 67387681"),
        (png(1)[:-30], "the image 'a.png' can't be read: "),
        (
            encoded(pixels(1, 97, 89), "JPEG")[:-900],
            "the image 'a.png' can't be read: image file is truncated",
        ),
        (encoded(np.zeros((3, 5), np.float32), "TIFF"), "'a.png' can't be read: it holds floats"),
    ],
)
def test_what_is_no_picture(content, words):
    with pytest.raises(BrokenImage) as refused:
        read(content, name="a.png")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.bad_input
def test_a_bomb_costs_no_memory(monkeypatch):
    loads = []
    monkeypatch.setattr(Image.Image, "load", loads.append)
    for side in (8_209, 30_000):
        with pytest.raises(BrokenImage, match="make it smaller"):
            read(bomb(side))
    assert loads == []


@pytest.mark.bad_input
@given(st.data())
def test_whatever_is_damaged_is_a_broken_image_or_a_picture(data):
    whole = data.draw(st.sampled_from([png(7), encoded(pixels(7), "JPEG"), encoded(pixels(7), "WEBP")]))
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + data.draw(st.binary(max_size=9)) + whole[at + data.draw(st.integers(0, 9)) :]
    with suppress(BrokenImage):
        assert read(damaged).shape[0] == 3


@pytest.mark.bad_input
def test_paths_that_hold_no_picture(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no image '.*nowhere\.jpg'"):
        read_image(tmp_path / "nowhere.jpg")
    with pytest.raises(BrokenImage, match=tmp_path.name):
        read_image(tmp_path)


@pytest.mark.bad_input
def test_sizes_and_types_that_are_none():
    with pytest.raises(ValueError, match="at least 1 pixel, got 0"):
        resize_crop(torch.zeros(3, 5, 7, dtype=torch.uint8), 0)
    with pytest.raises(TypeError, match=r"torch\.uint8, to be normalised, got torch\.float32"):
        normalise(torch.zeros(3, 5, 7))


def test_without_pillow_there_is_a_line_that_installs_it(monkeypatch):
    content = png(1)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pip install 'sightline\[train\]'"):
        read(content)
