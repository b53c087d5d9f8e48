import torch
from PIL import Image

from selftaught.report.image_map import REACH, draw_image_map, free_cells


def squares(*colors: str) -> list[Image.Image]:
    return [Image.new("RGB", (30, 30), color) for color in colors]


def test_no_two_images_share_a_cell_and_none_is_far_from_its_point() -> None:
    points = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 8.0])
    cells = 20
    places = free_cells(points, cells)
    found = [place for place in places if place is not None]
    assert len(found) == len(set(found))
    assert 150 < len(found) < 300
    unit = (points - points.amin(0)) / (points.amax(0) - points.amin(0))
    for (x, y), place in zip((unit * cells).clamp(max=cells - 0.001).tolist(), places, strict=True):
        if place is not None:
            assert min(place) >= 0
            assert max(place) < cells
            assert max(abs(place[0] - int(x)), abs(place[1] - int(y))) <= REACH


def test_the_first_of_equal_points_gets_their_cell_and_the_last_ones_find_none() -> None:
    points = torch.tensor([[0.0, 0.0], [9.0, 9.0], *[[5.5, 5.5]] * 12])
    places = free_cells(points, 9)
    assert places[:3] == [(0, 0), (8, 8), (5, 5)]
    assert places[11:] == [None, None, None]


def test_points_that_are_all_equal_or_on_a_line_are_no_problem() -> None:
    assert free_cells(torch.zeros(1, 2), 3) == [(0, 0)]
    assert free_cells(torch.tensor([[0.0, 2.0], [1.0, 2.0]]), 3) == [(0, 0), (2, 0)]


def test_a_marked_image_is_framed_and_whole_and_another_one_pale() -> None:
    points = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    picture, drawn = draw_image_map(squares("black", "black"), points, ["#ff0000", None], cells=3, cell=30)
    assert (picture.size, drawn) == ((90, 90), 2)
    assert picture.getpixel((0, 89)) == (255, 0, 0, 255)  # y goes up
    assert picture.getpixel((15, 75)) == (0, 0, 0, 255)
    assert all(80 < value < 180 for value in picture.getpixel((75, 15))[:3])  # type: ignore[index]
    assert picture.getpixel((45, 45)) == (255, 255, 255, 0)


def test_marked_images_come_before_others_where_there_is_no_room() -> None:
    points = torch.tensor([[0.0, 0.0], [9.0, 9.0], *[[5.5, 5.5]] * 12])
    colors = [None] * 13 + ["#00ff00"]
    picture, drawn = draw_image_map(squares(*["black"] * 14), points, colors, cells=9, cell=20)
    assert drawn == 11
    assert picture.getpixel((5 * 20, (8 - 5) * 20)) == (0, 255, 0, 255)
