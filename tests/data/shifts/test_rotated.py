import numpy as np
import pytest
import scipy.ndimage

from fedpace.data import Population, Rotated
from fedpace.data.shifts import Rotation


def rotated(images, angle):
    return Rotation(angle)(images, np.zeros(len(images), int), np.arange(len(images)))


def random_images(side=11, channels=3):
    return np.random.default_rng(0).integers(0, 256, (5, side, side, channels), dtype=np.uint8)


@pytest.mark.parametrize("turns", [-1, 0, 1, 2, 3])
@pytest.mark.parametrize("side", [10, 11])
def test_quarter_turns_are_exact_and_counter_clockwise(turns, side):
    images = random_images(side)
    assert np.array_equal(rotated(images, 90.0 * turns), np.rot90(images, turns, axes=(1, 2)))


@pytest.mark.parametrize("angle", [-60.0, -17.0, 30.0, 45.0])
def test_other_angles_are_bilinear_with_zeros_outside(angle):
    smooth = scipy.ndimage.gaussian_filter(random_images(28, 1).astype(float), (0, 2, 2, 0)).astype(np.uint8)
    expected = scipy.ndimage.rotate(smooth.astype(float), angle, axes=(2, 1), reshape=False, order=1)
    inner = slice(2, -2)  # at the edge scipy cuts what we blend with zero
    difference = np.abs(rotated(smooth, angle)[:, inner, inner] - expected[:, inner, inner])
    assert np.quantile(difference, 0.95) <= 1
    corner = rotated(np.full((1, 28, 28, 1), 255, np.uint8), 45.0)
    assert corner[0, 0, 0, 0] == corner[0, -1, 0, 0] == 0
    assert corner[0, 14, 14, 0] == 255


def test_images_need_not_be_square():
    image = np.zeros((1, 5, 9, 1), np.uint8)
    image[0, 2, 6] = 200  # two to the right of the centre
    up = rotated(image, 90.0)
    assert up[0, 0, 4, 0] == 200
    assert up.astype(int).sum() == 200


def test_angles_grow_evenly_and_the_test_set_has_its_own():
    population = Population(clients=5, classes=10, seed=0)
    assert [Rotated().for_client(client, population).angle for client in range(5)] == [-60, -30, 0, 30, 60]
    assert Rotated().for_test(population).angle == 90
    own = Rotated(angles=(0, 40), test_angle=180)
    assert [own.for_client(client, population).angle for client in (0, 4)] == [0, 40]
    assert own.for_test(population).angle == 180


def test_a_single_client_has_the_angle_in_the_middle():
    assert Rotated(angles=(10, 40)).for_client(0, Population(clients=1, classes=2, seed=0)).angle == 25
