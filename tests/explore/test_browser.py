"""The page in a real browser: chromium, driven by selenium."""

import base64
import csv
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from conftest import draw_photos
from selftaught import Embedder
from selftaught.data import find_images
from selftaught.explore import Exhibit, Version, exhibit_folder

pytest.importorskip("selenium")
pytest.importorskip("openTSNE")
pytest.importorskip("uvicorn")

import uvicorn
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from selftaught.explore.app import make_app
from selftaught.explore.maps import Maps

HERE = shutil.which("chromium") and shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not HERE, reason="needs chromium and chromedriver")
FLAGS = (
    "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync window-size=1100,750"
)
MANY = 100_000
PATIENCE = 60.0
DROP = """
const bytes = Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0));
const data = new DataTransfer();
data.items.add(new File([bytes], arguments[1]));
const options = {dataTransfer: data, bubbles: true, cancelable: true};
document.getElementById("map").dispatchEvent(new DragEvent("drop", options));
"""

SHAPE = """
const map = document.getElementById("map"), box = map.getBoundingClientRect();
return Math.abs(map.width / box.width - map.height / box.height) < 0.02;
"""


class Page:
    """The page in a browser, with patience."""

    def __init__(self, driver: Any, downloads: Path) -> None:
        self.driver, self.downloads = driver, downloads

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements(By.CSS_SELECTOR, selector))

    @property
    def status(self) -> str:
        return str(self.find("#status").text)

    def wait(self, what: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := what()):
            assert time.monotonic() < deadline, (self.status, self.driver.get_log("browser"))
            time.sleep(0.05)
        return found

    def errors(self) -> list[str]:
        """What the browser has complained of since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def open(self, address: str) -> None:
        self.driver.get("about:blank")
        self.errors()
        self.driver.get(address)
        self.wait(lambda: self.find("#map").get_attribute("data-map") == "done")

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def drag_around(self, reach: int) -> None:
        """Draw a square around the middle of the map."""
        actions = ActionChains(self.driver, duration=10).move_to_element(self.find("#map"))
        actions.move_by_offset(-reach, -reach).click_and_hold()
        for dx, dy in ((2 * reach, 0), (0, 2 * reach), (-2 * reach, 0)):
            actions.move_by_offset(dx, dy)
        actions.release().perform()

    def wait_for_photo(self) -> str:
        return str(self.wait(lambda: self.find("#panel").get_attribute("data-photo")))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("chromium")
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in [*FLAGS.split(), f"user-data-dir={folder / 'user'}"]:
        options.add_argument(f"--{flag}")
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield Page(driver, folder)
    driver.quit()


@contextmanager
def served(exhibit: Exhibit, maps: Maps, selections: Path) -> Iterator[str]:
    """The address of an exhibit."""
    app = make_app(exhibit, maps, "token", selections)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/token/"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def exhibit(embedder: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Exhibit:
    folder = draw_photos(tmp_path_factory.mktemp("shown") / "photos", classes=6, photos=8)
    (folder / "class 5").rename(folder / f"class 5 {'long ' * 12}")
    (folder / "class 2").rename(folder / "class 2 gru\u0308n")  # as a Mac writes an umlaut
    images = find_images(folder)
    vectors = embedder.encode([folder / file for file in images.files])
    before = vectors + vectors.std() * torch.randn(vectors.shape, generator=torch.Generator().manual_seed(0))
    versions = [Version("before training", embedder, before), Version("after training", embedder, vectors)]
    return exhibit_folder(images, versions)


@pytest.fixture(scope="module")
def address(exhibit: Exhibit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    maps = Maps([one.vectors for one in exhibit.versions])
    maps.start()
    with served(exhibit, maps, tmp_path_factory.mktemp("chosen") / "selections") as place:
        yield place
    maps.stop()


def test_a_click_opens_a_photo_with_its_neighbors_and_back_goes_back(page: Page, address: str) -> None:
    page.open(address)
    assert page.status == "48 photos: click one to see its neighbors"
    page.wait(lambda: int(page.find("#map").get_attribute("data-thumbnails")) > 2)  # for so few there is room at once
    page.press("n")
    first = page.wait_for_photo()
    assert len(page.all("#panel .tiles button")) == 24
    assert "closer than" in page.find("#panel .tiles button").text
    large = page.find("#panel img.large")
    page.wait(lambda: large.get_property("naturalWidth"))
    page.find("#panel .tiles button").click()
    second = page.wait(lambda: (photo := page.wait_for_photo()) != first and photo)
    assert page.driver.current_url.endswith(f"#photo={second}")
    page.driver.back()
    page.wait(lambda: page.wait_for_photo() == first)
    page.driver.back()
    page.wait(lambda: not page.find("#panel").is_displayed())
    page.driver.forward()
    page.wait(lambda: page.wait_for_photo() == first)
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.find("#panel").is_displayed())
    assert not page.errors()


def test_what_lies_under_the_pointer_is_opened(page: Page, address: str, exhibit: Exhibit) -> None:
    page.open(address)
    page.find("#name").send_keys("class 4/5.jpg", Keys.ENTER)  # which moves it to the middle
    assert page.wait_for_photo() == str(exhibit.names.index("class 4/5.jpg"))
    page.press(Keys.ESCAPE)
    page.find("#find").click()
    page.find("#map").send_keys("+" * 12)  # until no other photo is near
    page.find("#map").click()
    assert page.wait_for_photo() == str(exhibit.names.index("class 4/5.jpg"))


def test_a_dropped_photo_shows_its_neighbors_and_what_is_none_says_so(
    page: Page, address: str, exhibit: Exhibit
) -> None:
    page.open(address)
    content = base64.b64encode(Path(exhibit.paths[7]).read_bytes()).decode()
    page.driver.execute_script(DROP, content, "mine.jpg")
    page.wait(lambda: page.all("#panel .tiles button"))
    assert page.find("#panel h2").text == "mine.jpg"
    assert page.find("#panel .tiles button").get_attribute("title") == exhibit.names[7]
    before, after = page.all("#versions button")
    nearest = "return [...document.querySelectorAll('#panel .tiles button')].map((tile) => tile.textContent)"
    found = page.driver.execute_script(nearest)
    before.click()
    page.wait(lambda: (other := page.driver.execute_script(nearest)) != found and len(other) == len(found))
    after.click()
    page.wait(lambda: page.driver.execute_script(nearest) == found)
    page.find("#panel .tiles button").click()
    assert page.wait_for_photo() == "7"
    page.driver.back()
    page.wait(lambda: page.find("#panel h2").text == "mine.jpg")
    page.driver.execute_script(DROP, base64.b64encode(b"no").decode(), "no.jpg")
    page.wait(lambda: "not an image" in page.status)


def test_a_lasso_becomes_a_table_and_a_folder_of_links(page: Page, address: str, exhibit: Exhibit) -> None:
    page.open(address)
    page.press("l")
    assert page.status == "Draw a line around photos."
    page.drag_around(220)
    page.wait(lambda: "selected" in page.status)
    count = int(page.status.split()[0])
    assert count > 0
    page.find("#csv").click()
    table = page.downloads / "selected.csv"
    page.wait(table.exists)
    with table.open() as file:
        rows = [row["path"] for row in csv.DictReader(file)]
    assert len(rows) == count
    assert set(rows) <= set(exhibit.names)
    page.find("#folder").send_keys("around the middle", Keys.ENTER)
    made = Path(page.wait(lambda: page.find("#made").text).removeprefix("Made "))
    assert {Path(link.resolve()) for link in made.iterdir()} == {
        Path(exhibit.paths[exhibit.names.index(row)]).resolve() for row in rows
    }
    page.find("#folder").send_keys(Keys.ENTER)
    page.wait(lambda: "already" in page.find("#made").text)
    page.find("#panel .tiles button").click()
    page.wait_for_photo()
    page.driver.back()  # a photo has been looked at, and the selection is still there
    page.wait(lambda: page.status == f"{count} of 48 photos selected")
    page.press(Keys.ESCAPE)
    page.wait(lambda: page.status.startswith("48 photos"))


def test_names_are_searched_colors_and_models_switched_by_keyboard_alone(page: Page, address: str) -> None:
    page.open(address)
    page.press("/")
    page.press("CLASS 3/")
    page.wait(lambda: page.status.startswith("8 of 48 photos have such a name"))
    page.press(Keys.ENTER)
    page.wait_for_photo()
    assert page.find("#panel h2").text == "class 3/0.jpg"
    page.press(Keys.ENTER)
    page.wait(lambda: page.find("#panel h2").text == "class 3/1.jpg")
    page.press(Keys.ESCAPE)
    page.press("s")
    page.wait(lambda: "selected" in page.status)
    page.press(Keys.ESCAPE)
    page.find("#name").clear()
    page.press("/")
    page.press("GR\u00dcN")
    page.wait(lambda: page.status.startswith("8 of 48 photos have such a name"))
    for kind in ("cluster", "date", "distance", "folder"):
        page.driver.execute_script(
            "const s = document.getElementById('color'); s.value = arguments[0]; s.onchange();", kind
        )
        page.wait(lambda: page.all("#classes div"))
    page.wait(lambda: len(page.all("#classes div")) == 6)
    wide = "return [...document.querySelectorAll('#classes div')].some((row) => row.scrollWidth > row.clientWidth)"
    assert not page.driver.execute_script(wide), "a number of photos is cut off"
    before, after = page.all("#versions button")
    assert after.get_attribute("aria-pressed") == "true"
    before.send_keys(Keys.ENTER)
    page.wait(lambda: before.get_attribute("aria-pressed") == "true")
    dark = "return getComputedStyle(document.documentElement).colorScheme"
    was = page.driver.execute_script(dark)
    page.find("#theme").send_keys(Keys.ENTER)
    assert page.driver.execute_script(dark) != was


def test_a_date_is_that_of_this_place(page: Page, embedder: Embedder, tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    Image.new("RGB", (40, 40)).save(photo)
    late = datetime(1969, 7, 20, 20, tzinfo=UTC).timestamp()  # which is the 21st in Tokyo
    os.utime(photo, (late, late))
    one = exhibit_folder(find_images(tmp_path), [Version("model", embedder, torch.zeros(1, 8))])
    maps = Maps([version.vectors for version in one.versions])
    maps.steps = [750]
    page.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    try:
        with served(one, maps, tmp_path) as address:
            page.open(address)
            page.driver.execute_script("const s = document.getElementById('color'); s.value = 'date'; s.onchange();")
            page.wait(lambda: page.all("#classes div"))
            assert {row.text for row in page.all("#classes div")} == {"1969-07-21"}
            page.press("n")
            page.wait_for_photo()
            assert page.find("#panel p").text == "date: 1969-07-21"
    finally:
        page.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def test_a_slider_goes_through_many_stages_of_training(page: Page, exhibit: Exhibit, tmp_path: Path) -> None:
    last = exhibit.versions[-1]
    stages = [Version(f"epoch {n}", last.embedder, last.vectors.roll(n, 1)) for n in range(4)]
    many = Exhibit(exhibit.names, exhibit.paths, (*stages, last), real=exhibit.real)
    maps = Maps([one.vectors for one in many.versions])
    maps.steps = [750] * 5
    with served(many, maps, tmp_path) as address:
        page.open(address)
        slider, word = page.find("#epochs"), page.find("#versions output")
        assert word.text == "after training"
        slider.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
        assert word.text == "epoch 2"
        page.press("n")
        slider.send_keys(Keys.HOME)
        assert word.text == "epoch 0"
        page.find("#find").click()
        page.find("#map").send_keys("n")
        page.wait_for_photo()
        assert not page.errors()


def test_on_a_narrow_screen_the_photo_opens_below_the_map(page: Page, address: str) -> None:
    before = page.driver.get_window_size()
    page.driver.set_window_size(400, 800)
    try:
        page.open(address)
        page.press("n")
        page.wait_for_photo()
        panel, chart = (page.find(name).rect for name in ("#panel", "#map"))
        bottom, right = page.driver.execute_script("return [innerHeight, document.documentElement.scrollWidth]")
        assert chart["height"] > 100
        assert panel["height"] > 100
        assert panel["y"] >= chart["y"] + chart["height"] - 1
        assert panel["y"] + panel["height"] <= bottom + 1
        assert right <= page.driver.execute_script("return innerWidth"), "nothing is cut off at the side"
        page.press("s")
        page.wait(lambda: "selected" in page.status)
        page.wait(lambda: page.driver.execute_script(SHAPE))
    finally:
        page.driver.set_window_size(before["width"], before["height"])


def test_a_hundred_thousand_points_are_shown_and_selected(
    page: Page, exhibit: Exhibit, embedder: Embedder, tmp_path: Path
) -> None:
    vectors = torch.randn(MANY, 8, generator=torch.Generator().manual_seed(0))
    places = [number % len(exhibit) for number in range(MANY)]
    many = Exhibit(
        tuple(f"{number}/{exhibit.names[place]}" for number, place in enumerate(places)),
        tuple(exhibit.paths[place] for place in places),
        (Version("model", embedder, vectors),),
        real=tuple(exhibit.real[place] for place in places),
    )
    maps = Maps([vectors])
    maps.steps = [750]  # the map of principal directions is all this one gets
    with served(many, maps, tmp_path) as address:
        page.open(address)
        assert page.status.startswith(f"{MANY} photos")
        page.press("l")
        page.drag_around(100)
        page.wait(lambda: "selected" in page.status)
        assert 1000 < int(page.status.split()[0]) < MANY
        page.press(Keys.ESCAPE)
        for _ in range(14):
            page.press("+")
        page.wait(lambda: int(page.find("#map").get_attribute("data-thumbnails")) > 3)
        page.press("n")
        page.wait_for_photo()
