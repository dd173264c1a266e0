import numpy as np
import pytest
from PIL import Image

from freetickets.data.corruptions import SEVERITIES, corrupt, find_frost, frost_source
from freetickets.data.corruptions.frost import FILES, load_pictures

SHARES = ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))


@pytest.fixture
def pictures(tmp_path):
    """Five pictures whose colours tell file, row and column."""
    folder = tmp_path / "frost"
    folder.mkdir()
    y, x = np.mgrid[:250, :350]
    centre = (y % 5 == 2) & (x % 5 == 2)  # of five times five pixels
    for number, name in enumerate(FILES):
        picture = np.stack([50 * number * centre, 4 * (y // 5), 3 * (x // 5)], axis=-1)
        picture = np.where(centre[..., None], picture, 255).astype(np.uint8)
        # PNG in all five, so that no JPEG blurs the places.
        Image.fromarray(picture).save(folder / name, "PNG")
    return folder


def test_a_crop_of_every_fifth_pixel_of_one_of_five_pictures_is_added(pictures):
    black = np.zeros((400, 32, 32, 3), np.uint8)
    result = corrupt(black, "frost", 5, frost=pictures)
    # Cut-off multiples of more than 1 can be read back.
    files, rows, columns = np.ceil(result / (0.45 * np.array([50, 4, 3]))).transpose(3, 0, 1, 2)
    assert (files == files[:, :1, :1]).all()
    assert set(files[:, 0, 0]) == {0, 1, 2, 3, 4}
    assert (np.diff(rows, axis=1) == 1).all()
    assert (np.diff(columns, axis=2) == 1).all()
    assert set(rows[:, 0, 0]) == set(range(50 - 32))
    assert set(columns[:, 0, 0]) == set(range(70 - 32))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_image_and_ice_have_their_shares(photos, severity, pictures):
    image_share, ice_share = SHARES[severity - 1]
    black, bright = np.zeros_like(photos), photos // 4
    ice = corrupt(black, "frost", severity, frost=pictures)
    result = corrupt(bright, "frost", severity, frost=pictures)
    assert np.abs(result - (image_share * bright + ice)).max() <= 1
    assert ice.max() <= ice_share * 250
    large = np.zeros((2, 90, 120, 3), np.uint8)  # larger than the pictures, which are continued
    assert corrupt(large, "frost", severity, frost=pictures).std() > 1


def test_where_frost_comes_from(refused, pictures, tmp_path, monkeypatch):
    assert (frost_source(None), frost_source(pictures)) == ("synthetic", "files")
    assert find_frost(pictures) == pictures
    assert find_frost(None, tmp_path) == pictures
    monkeypatch.setenv("FREETICKETS_DATA", str(tmp_path))
    assert find_frost(None) == pictures
    (pictures / FILES[3]).unlink()
    assert find_frost(None) is None
    refused(r"no frost4.jpg in .*: give the folder", find_frost, pictures)
    refused(r"no frost4.jpg", corrupt, np.zeros((1, 8, 8, 3), np.uint8), "frost", 1, frost=pictures)
    (pictures / FILES[3]).touch()
    (pictures / FILES[1]).write_bytes(b"no picture")
    refused(r"frost2.png can't be read as an image", load_pictures, pictures)


def _statistics(pictures):
    """Of crops as frost takes them."""
    rng, crops = np.random.default_rng(0), []
    for _ in range(2000):
        picture = pictures[rng.integers(5)]
        top, left = rng.integers(picture.shape[0] - 32), rng.integers(picture.shape[1] - 32)
        crops.append(picture[top : top + 32, left : left + 32])
    values = np.stack(crops).astype(float)
    return {
        "mean": values.mean(axis=(0, 1, 2)),
        "deviation": values.std(),
        "within": values.std(axis=(1, 2)).mean(),
        "between": values.mean(axis=(1, 2, 3)).std(),
        "quantiles": np.percentile(values, [5, 25, 50, 75, 95]),
    }


def test_synthetic_pictures_have_the_statistics_of_the_published_ones_and_differ():
    published = find_frost(None)  # checked as well where they are there
    for folder, tolerance in [(None, 7), *([(published, 2.5)] if published else [])]:
        found = _statistics(load_pictures(folder))
        assert found["mean"] == pytest.approx((144, 165, 177), abs=tolerance)
        assert found["deviation"] == pytest.approx(49, abs=tolerance)
        assert found["within"] == pytest.approx(22.3, abs=tolerance)
        assert found["between"] == pytest.approx(38.6, abs=tolerance)
        assert found["quantiles"] == pytest.approx((67, 132, 168, 203, 228), abs=tolerance)
    pictures = load_pictures(None)
    assert len({picture.tobytes() for picture in pictures}) == 5
    assert load_pictures(None)[0] is pictures[0]
    assert all(picture.std(axis=(0, 1)).min() > 10 for picture in pictures)
