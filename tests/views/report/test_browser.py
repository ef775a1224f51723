"""The page in a real browser: it loads from disk without requests, reacts to input, and shows strings as text."""

import time
from itertools import product
from pathlib import Path

import pytest

from proxlearn.cli import main
from tests.small_runs import run, small
from tests.views.report.pages import (
    HOSTILE,
    Browser,
    chromium,
    hostile_run,
    needs_browser,
    plane_run,
    serving,
    sweep_of,
)

pytestmark = needs_browser
RIGHT, LEFT, SPACE = "\ue014", "\ue012", " "


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as window:
        window.size(1280)
        yield window


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """Pages of a run on two features, a sweep of nine runs, and a hostile run."""
    folder = tmp_path_factory.mktemp("pages")
    for name in ("plane", "hostile"):
        (folder / name).mkdir()
    grid = [{"beta": b, "epsilon": e} for b, e in product(("0.1", "0.4", "1.6"), ("0.01", "0.1", "1"))]
    folders = {
        "plane": plane_run(folder / "plane", ("no", "yes")),
        "sweep": sweep_of(folder, grid),
        "hostile": hostile_run(folder / "hostile"),
    }
    for name, path in folders.items():
        assert main(["report", str(path), "-o", str(folder / f"{name}.html")]) == 0
    return {name: folder / f"{name}.html" for name in folders}


def curves_shown(browser: Browser) -> list[int]:
    counts = browser("[...document.querySelectorAll('#curves .chart')].map(chart => chart.dataset.curves)")
    return [int(count) for count in counts]


def wait(until, seconds: float = 10.0):
    """Call ``until`` ten times per second until it returns something true, and return that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = until()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError("the condition was not met in time")


@pytest.mark.parametrize("name", ["plane", "sweep", "hostile"])
def test_it_loads_from_disk_without_an_error_or_a_request(browser, pages, name):
    browser.open(pages[name].as_uri())
    assert not browser("document.getElementById('page').hidden")
    assert browser("document.querySelectorAll('.chart canvas').length") == 8
    assert browser.errors() == []
    assert browser.requests() == {pages[name].as_uri()}


def test_the_slider_moves_the_cloud(browser, pages):
    browser.open(pages["plane"].as_uri())
    seen = {}
    for key in (LEFT, LEFT, LEFT):
        seen[browser("document.getElementById('step').value")] = browser.pixels("#cloud"), browser.pixels("#learnt")
        browser.press("#frame", key)
    # Three stored steps, three different clouds, three different regions.
    assert len(seen) == len({cloud for cloud, _ in seen.values()}) == len({learnt for _, learnt in seen.values()}) == 3
    assert next(iter(seen)) == "k = 40"
    browser.press("#cloud", RIGHT)
    assert browser("document.getElementById('step').value") == list(seen)[-1]
    assert browser.pixels("#cloud") == list(seen.values())[-1][0]


def test_play_goes_from_the_first_checkpoint_to_the_newest(browser, pages):
    browser.open(pages["plane"].as_uri())
    browser.press("#cloud", SPACE)
    assert browser("document.getElementById('play').ariaLabel") == "Pause"
    frames = int(browser("document.getElementById('frame').max"))
    wait(lambda: 0 < int(browser("document.getElementById('frame').value")) < frames)
    browser.click("#play")
    assert browser("document.getElementById('play').ariaLabel") == "Play"


def test_axes_can_be_chosen(browser, pages):
    browser.open(pages["plane"].as_uri())
    before = browser.pixels("#cloud")
    names = browser("[...document.getElementById('across').options].map(o => o.value)")
    assert names == ["principal axis 1", "principal axis 2", "a", "b", "w: x", "w: y"]
    browser.driver.execute_script("const s = document.getElementById('up'); s.value = 'a'; s.onchange()")
    assert browser.pixels("#cloud") != before


def test_a_curve_can_be_hidden_and_shown_again(browser, pages):
    browser.open(pages["plane"].as_uri())
    before = curves_shown(browser), browser.pixels("#curves canvas")
    assert before[0] == [4, 4]
    browser.press("#legend button", SPACE)
    assert curves_shown(browser) == [3, 3]
    assert browser("document.querySelector('#legend button').ariaPressed") == "false"
    assert browser.pixels("#curves canvas") != before[1]
    browser.click("#legend button")
    assert (curves_shown(browser), browser.pixels("#curves canvas")) == before


def test_a_sweep_of_nine_runs_shows_nine_curves_by_a_chosen_parameter(browser, pages):
    browser.open(pages["sweep"].as_uri())
    assert curves_shown(browser) == [9, 9]
    swatches = "[...document.querySelectorAll('#legend i')].map(i => i.style.borderTopColor)"
    assert len(browser("document.querySelectorAll('#legend button')")) == 9
    by_beta = browser(swatches)
    assert [by_beta.index(colour) for colour in by_beta] == [0, 0, 0, 3, 3, 3, 6, 6, 6]
    browser.driver.execute_script("const s = document.getElementById('colour'); s.value = 'epsilon'; s.onchange()")
    by_epsilon = browser(swatches)
    assert [by_epsilon.index(colour) for colour in by_epsilon] == [0, 1, 2] * 3
    browser.driver.execute_script("document.querySelectorAll('#legend button')[4].click()")
    assert curves_shown(browser) == [8, 8]
    # With the training part there are two curves per visible run.
    browser.driver.execute_script("document.querySelectorAll('#parts input')[1].click()")
    assert curves_shown(browser) == [16, 16]
    browser.driver.execute_script("const s = document.getElementById('run'); s.value = 5; s.onchange()")
    assert "0.4" in browser("document.querySelector('#run').selectedOptions[0].text")
    assert browser.errors() == []


def test_keys_zoom_all_charts_and_zero_shows_all(browser, pages):
    browser.open(pages["plane"].as_uri())
    canvases = ["#curves .card:nth-child(1) canvas", "#health canvas"]
    before = [browser.pixels(canvas) for canvas in canvases]
    browser.press("#curves .chart", "+")
    assert all(browser.pixels(canvas) != old for canvas, old in zip(canvases, before, strict=True))
    browser.press("#curves .chart", "0")
    browser.press("#curves .chart", RIGHT)
    assert "k = " in browser("document.querySelector('#curves .tip').textContent")
    assert [browser.pixels(canvas) for canvas in canvases] == before


def test_two_fingers_zoom(browser, pages):
    browser.size(390)
    try:
        browser.open(pages["plane"].as_uri())
        before = browser.pixels("#curves canvas")
        place = browser(
            "(({x, y, width, height}) => [x + width / 2, y + height / 2])"
            "(document.querySelector('#curves .u-over').getBoundingClientRect())"
        )
        for kind, apart in (("touchStart", 40), ("touchMove", 60), ("touchMove", 90), ("touchEnd", None)):
            fingers = [] if apart is None else [{"x": place[0] + side * apart, "y": place[1]} for side in (-1, 1)]
            browser.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})
        wait(lambda: browser.pixels("#curves canvas") != before)
        browser.click("#unzoom")
        wait(lambda: browser.pixels("#curves canvas") == before)
    finally:
        browser.size(1280)


@pytest.mark.parametrize("name", ["plane", "sweep", "hostile"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_page(browser, pages, name, width):
    browser.size(width)
    browser.open(pages[name].as_uri())
    browser("document.querySelectorAll('details').forEach(each => { each.open = true })")
    try:
        assert browser("document.documentElement.scrollWidth") <= width
        wide = "[...document.querySelectorAll('.card')].filter(c => c.scrollWidth > c.clientWidth + 1).length"
        assert browser(wide) == 0
    finally:
        browser.size(1280)


def test_dark_by_the_system_setting_and_by_the_button(browser, pages):
    background = "getComputedStyle(document.body).backgroundColor"
    browser.size(1280, dark=True)
    try:
        browser.open(pages["plane"].as_uri())
        dark = browser(background)
        browser.click("#theme")
        assert browser(background) != dark
        assert browser("document.documentElement.dataset.theme") == "light"
    finally:
        browser.driver.execute_script("localStorage.clear()")
        browser.size(1280)


def test_hostile_names_show_as_text(browser, pages):
    browser.open(pages["hostile"].as_uri())
    assert browser("document.querySelectorAll('#page img, #page script, #page iframe').length") == 0
    assert browser("document.querySelectorAll('script').length") == 2
    for place in ("#about", "#results", "#across"):
        text = browser(f"document.querySelector('{place}').textContent.toWellFormed()")
        assert HOSTILE in text, place
    assert browser.errors() == []


def test_a_watched_page_refreshes_itself_in_place(browser, tmp_path):
    run(small(steps=20), tmp_path)
    with serving(tmp_path) as server:
        browser.open(server.url)
        assert browser("document.getElementById('step').value") == "k = 20"
        browser.driver.execute_script("window.here = true")
        browser.click("#legend button")
        run(small(steps=200), tmp_path)
        wait(lambda: browser("document.getElementById('step').value") == "k = 200", 20)
        # The page was not reloaded, and the reader's choices are kept.
        assert browser("window.here")
        assert curves_shown(browser) == [3, 3]
        assert browser.errors() == []
        assert browser.requests() == {server.url, f"{server.url}data.json"}
    wait(lambda: browser("document.getElementById('state').textContent") == "no connection", 20)
