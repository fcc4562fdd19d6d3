import pytest
import torch

from sightline.data import features
from sightline.data.captions import CaptionedImage, CaptionSet
from sightline.data.features import cache_features, cache_folder
from sightline.data.images import BrokenImage, digest, normalise, resize_crop
from sightline.data.views import view_of


class Drawn:
    """Pictures in memory; the one called "broken" can't be opened."""

    def __init__(self, n):
        generator = torch.Generator().manual_seed(0)
        self.pictures = {
            str(i): torch.randint(256, (3, 13, 17), generator=generator, dtype=torch.uint8) for i in range(n)
        }

    def open(self, name, *, size=None):
        if name not in self.pictures:
            raise BrokenImage(f"the image {name!r} is damaged")
        picture = self.pictures[name]
        return picture if size is None else resize_crop(picture, size)

    def digest(self, name):
        if name not in self.pictures:
            raise BrokenImage(name)
        return digest(self.pictures[name])


def drawn(n, *extra):
    images = Drawn(n)
    records = [CaptionedImage(name, ("a",), "train") for name in [*map(str, range(n)), *extra]]
    return CaptionSet(tuple(records), images), records


class Network:
    """Sees a picture as a grid of two cells, and counts how many it saw."""

    def __init__(self):
        self.seen = 0

    def __call__(self, images):
        self.seen += len(images)
        return images.unflatten(-1, (2, -1)).mean(-2).flatten(2).transpose(1, 2)  # (B, P, 3)


def kept(data, records, net, folder, **changes):
    wishes = {"signature": "net 1", "size": 8, "views": 3, "batch_size": 4} | changes
    return cache_features(data, records, encode=net, folder=folder, **wishes)


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr(features, "SHARD", 5)


def test_grids_are_those_of_the_views(tmp_path):
    data, records = drawn(13)
    net = Network()
    told = []
    found = kept(data, records, net, tmp_path, progress=lambda done, total: told.append((done, total)))
    assert len(found) == 13
    assert found.views == 3
    assert told[-1] == (39, 39)
    for i, record in enumerate(records):
        for view in range(3):
            picture = data.open(record)
            seen = view_of(picture, view, 8, digest=data.image_digest(record))
            expected = Network()(normalise(seen[None]))[0]
            grid = found.grid(i, view)
            assert grid.dtype == torch.float16
            assert tuple(grid.shape) == found.shape
            torch.testing.assert_close(grid.float(), expected, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(found.whole(1), torch.stack([found.grid(i, 1) for i in range(13)]))
    chosen = found.grids([12, 0, 7], [2, 0, 1])
    torch.testing.assert_close(chosen, torch.stack([found.grid(12, 2), found.grid(0, 0), found.grid(7, 1)]))


def test_what_is_kept_is_not_computed_again(tmp_path):
    data, records = drawn(13)
    net = Network()
    first = kept(data, records, net, tmp_path).whole(2)
    assert net.seen == 39
    again = kept(data, records, net, tmp_path)
    assert net.seen == 39
    assert torch.equal(again.whole(2), first)
    kept(data, records, net, tmp_path, views=4)
    assert net.seen == 39 + 13


@pytest.mark.parametrize("change", [{"signature": "net 2"}, {"size": 6}])
def test_another_network_or_size_is_computed_anew(tmp_path, change):
    data, records = drawn(3)
    net = Network()
    kept(data, records, net, tmp_path, views=1)
    kept(data, records, net, tmp_path, views=1, **change)
    assert net.seen == 6


def test_a_picture_that_changed_is_computed_anew_with_its_file(tmp_path):
    data, records = drawn(13)
    net = Network()
    kept(data, records, net, tmp_path, views=1)
    data.images.pictures["7"] = 255 - data.images.pictures["7"]
    found = kept(data, records, net, tmp_path, views=1)
    assert net.seen == 13 + 5
    expected = Network()(normalise(data.open(records[7], size=8)[None]))[0]
    torch.testing.assert_close(found.grid(7).float(), expected, atol=1e-3, rtol=1e-3)


def test_a_run_that_was_stopped_goes_on(tmp_path):
    data, records = drawn(13)

    class Stopped(Network):
        def __call__(self, images):
            if self.seen >= 8:
                raise KeyboardInterrupt
            return super().__call__(images)

    with pytest.raises(KeyboardInterrupt):
        kept(data, records, Stopped(), tmp_path, views=1)
    assert len(list(tmp_path.iterdir())) == 1  # one whole file, and no part of another
    net = Network()
    kept(data, records, net, tmp_path, views=1)
    assert net.seen == 8


def test_a_damaged_file_is_replaced(tmp_path):
    data, records = drawn(4)
    net = Network()
    before = kept(data, records, net, tmp_path, views=1).whole()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-3] ^= 16
    notes = whole.replace(b'"view"', b'"veiw"').replace(b'"broken"', b'"brokem"')
    for times, content in enumerate((whole[:-3], bytes(flipped), notes, b""), 2):
        path.write_bytes(content)
        assert torch.equal(kept(data, records, net, tmp_path, views=1).whole(), before)
        assert net.seen == 4 * times


def test_broken_pictures_are_named_and_empty(tmp_path):
    data, records = drawn(6, "lost")
    for _ in range(2):  # computed, then read back
        found = kept(data, records, Network(), tmp_path)
        assert found.broken == {6: "the image 'lost' is damaged"}
        assert not found.grid(6, 2).any()
        assert found.grid(5, 2).any()


def test_views_are_a_function_of_number_and_content():
    picture = torch.randint(256, (3, 23, 31), dtype=torch.uint8)
    views = [view_of(picture, view, 8, digest="a") for view in range(9)]
    assert {tuple(view.shape) for view in views} == {(3, 8, 8)}
    assert torch.equal(views[1], views[0].flip(-1))
    assert len({digest(view) for view in views}) == 9
    assert torch.equal(views[5], view_of(picture, 5, 8, digest="a"))
    assert not torch.equal(views[5], view_of(picture, 5, 8, digest="b"))


def test_the_folder_is_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "features"
    monkeypatch.delenv("SIGHTLINE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x" / "sightline" / "features"


@pytest.mark.bad_input
def test_nothing_to_keep(tmp_path):
    data, records = drawn(2)
    with pytest.raises(ValueError, match="got 0 and 1"):
        kept(data, [], Network(), tmp_path, views=1)
    with pytest.raises(ValueError, match="got 2 and 0"):
        kept(data, records, Network(), tmp_path, views=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="is a file, not a folder; set SIGHTLINE_CACHE"):
        kept(data, records, Network(), tmp_path / "file" / "deep", views=1)
