"""What may share bytes: Figures 4 and 5 of "Deep Fusion", and a run through memory element by element."""

from __future__ import annotations

import itertools
import random

import pytest

from memsched.codegen.onchip.network import OnChipNetwork, Range
from memsched.codegen.onchip.overlap import Lifetime, distance, piece_distance, place
from memsched.graph.model import Graph
from tests.codegen.onchip.networks import Net


def figure_5() -> Graph:
    net = Net(3, 8, 64)
    net.conv(0, 16, 4, 2, 0)
    return net.graph()


def test_figure_5() -> None:
    """The input lies at 2096..8240, the output at 0..5952: 31 % less than side by side."""
    network = OnChipNetwork(figure_5())
    layer = network.layers[0]
    given, made = network.maps[layer.reads[0]], network.maps[layer.writes[0]]
    assert (given.size, made.size) == (6144, 5952)
    whole = [((0, one.rows), (0, one.columns)) for one in (made, given)]
    assert piece_distance(network, 0, 0, *whole) == 2096
    assert int(100 * (1 - (2096 + given.size) / (given.size + made.size))) == 31


def test_figure_4_lets_data_share_whose_lifetimes_do_not_meet() -> None:
    ram = [Lifetime(40, 0, 1), Lifetime(30, 1, 2), Lifetime(40, 2, 3)]
    found = place(ram, {}, 70)
    assert found is not None
    assert found[0] == found[2]
    assert place(ram, {}, 69) is None


def test_elementwise_layers_compute_in_place() -> None:
    net = Net(3, 5, 6)
    net.relu(0)
    net.join("Add", 0, 1)
    network = OnChipNetwork(net.graph())
    whole = ((0, 5), (0, 6))
    assert [piece_distance(network, op, entry, whole, whole) for op, entry in ((0, 0), (1, 0), (1, 1))] == [0, 0, 0]


def test_one_point_needs_all_of_its_input_first() -> None:
    assert distance([([0], 4, 4), ([0], 4, 4)], 4) is None


def test_addresses_are_aligned() -> None:
    found = place([Lifetime(10, 0, 0), Lifetime(10, 0, 0)], {}, 42, 32)
    assert sorted(found or ()) == [0, 32]


Reads = list[tuple[int, int]]


def reads_of(x: int, y: int, kernel: int, stride: int, pad: int, length: tuple[int, int]) -> Reads:
    """The rows and columns that output point (y, x) of a window needs, by definition."""
    return [
        (row, column)
        for row, column in itertools.product(
            range(y * stride - pad, y * stride - pad + kernel), range(x * stride - pad, x * stride - pad + kernel)
        )
        if 0 <= row < length[0] and 0 <= column < length[1]
    ]


def overwritten(needs: list[list[int]], above: int, point_out: int, point_in: int) -> bool:
    """Whether a byte of the input, which begins ``above`` the output, is hit before its last use."""
    hit: set[int] = set()
    for number, reads in enumerate(needs):
        for address in reads:
            if any(above + address + byte in hit for byte in range(0, point_in, 4)):
                return True
        hit.update(range(number * point_out, (number + 1) * point_out))
    return False


@pytest.mark.parametrize("seed", range(60))
def test_no_element_is_overwritten_before_its_last_use(seed: int) -> None:
    pick = random.Random(seed)
    channels, made_channels = pick.choice([(1, 1), (2, 3), (4, 1), (3, 3)])
    rows, columns = pick.randint(5, 9), pick.randint(5, 11)
    kernel, stride = pick.choice([1, 2, 3, 4]), pick.choice([1, 1, 2, 3])
    pad = pick.randint(0, kernel - 1)
    net = Net(channels, rows, columns)
    made = net.conv(0, made_channels, kernel, stride, pad)
    _, out_rows, out_columns = net.shape(made)
    network = OnChipNetwork(net.graph())
    part: list[Range] = []
    for length in (out_rows, out_columns):
        low = pick.randrange(length)
        part.append((low, pick.randint(low + 1, length)))
    spans = [network.needed(0, axis, *part[axis]) for axis in range(2)]
    if None in spans:
        return
    given = [span[1][0] for span in spans if span is not None]
    top, left = (span[0] for span in given if span is not None)
    width = given[1][1] - left if given[1] is not None else 0
    needs = [
        [4 * channels * ((row - top) * width + column - left)
         for row, column in reads_of(x, y, kernel, stride, pad, (rows, columns))]
        for y, x in itertools.product(range(*part[0]), range(*part[1]))
    ]  # fmt: skip
    found = piece_distance(network, 0, 0, (part[0], part[1]), (given[0], given[1]))  # type: ignore[arg-type]
    if found is None:
        assert len(needs) == 1
        return
    point = 4 * made_channels
    assert not overwritten(needs, found, point, 4 * channels)
    # No distance below it works, in whole elements: it is not only safe but the least.
    assert overwritten(needs, found - 4, point, 4 * channels) or found <= -4 * channels * width * (given[0][1] - top)  # type: ignore[index]
