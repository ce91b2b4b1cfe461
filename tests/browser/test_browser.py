"The tutorials in a real browser: move a slider, paint a stroke, and see what changes on the screen"
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driving import CHROMIUM, ROOT, choose, opened, pixel, press, says, slider, stroke

sync_api = pytest.importorskip('playwright.sync_api', reason="needs playwright and voila: pip install -e '.[browser]'")
pytest.importorskip('voila', reason="needs playwright and voila: pip install -e '.[browser]'")
if CHROMIUM is None: pytest.skip('needs a Chromium browser, such as apt-get install chromium', allow_module_level=True)
SHOTS = Path(os.environ.get('SCREENSHOTS', ROOT/'figures/browser'))


@pytest.fixture(scope='module')
def playwright():
    with sync_api.sync_playwright() as p: yield p


def tutorial(name): return ROOT/f'nbs/tutorials/{name}.ipynb'
def sources(page): return [i.get_attribute('src') for i in page.locator('img.widget-image').all()]


def photograph(page, name):
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SHOTS/f'{name}.png'), full_page=True)


@pytest.mark.parametrize('kind', ['voila', 'lab'])
def test_sliders_change_what_is_shown(playwright, tmp_path, kind):
    with opened(playwright, kind, tutorial('explore_uncertainty'), tmp_path/'log') as page:
        says(page, 'shots=5 ')
        page.locator('canvas.deepgp-canvas').first.wait_for()
        page.wait_for_timeout(500)
        photograph(page, f'explore_{kind}')
        before = sources(page)
        press(page, 'shots', 'ArrowLeft', 4)
        says(page, 'shots=1 ')
        both_new = ('old => [...document.querySelectorAll("img.widget-image")].slice(0, 2)'
                    '.every((image, k) => image.src !== old[k])')
        page.wait_for_function(both_new, arg=before)
        box = slider(page, 'noise').bounding_box()
        page.mouse.move(box['x'] + box['width']/2, box['y'] + box['height']/2)
        page.mouse.down()
        page.mouse.move(box['x'] + 60, box['y'] + box['height']/2, steps=6)
        page.mouse.up()
        page.wait_for_function('() => /noise=0\\.[1-9]|noise=1/.test(document.body.innerText)')
        choose(page, 'kernel', 'linear')
        says(page, 'kernel=linear')
        covariance = sources(page)[3]
        stroke(page, page.locator('canvas.deepgp-canvas').first, [(.2, .8)])
        page.wait_for_function('old => document.querySelectorAll("img.widget-image")[3].src !== old', arg=covariance)
        assert page.locator('text=/with pixel \\(1\\d, 7\\d\\)/').count()
        choose(page, 'kernel', 'squared exponential')
        press(page, 'shots', 'ArrowRight', 4)
        says(page, 'shots=5 ')
        photograph(page, f'explore_{kind}_moved')


def test_two_hundred_quick_moves(playwright, tmp_path):
    with opened(playwright, 'voila', tutorial('explore_uncertainty'), tmp_path/'log') as page:
        says(page, 'shots=5 ')
        for k in range(100):
            press(page, 'length²', 'ArrowRight' if k % 20 < 10 else 'ArrowLeft')
            press(page, 'shots', 'ArrowRight' if k % 4 < 2 else 'ArrowLeft')
        shown = re.search(r'shots=(\d+)', says(page, 'shots=5 ', 60_000))
        assert shown and page.locator('img.widget-image').count() < 30  # nothing piles up on the page


def test_results_are_browsed_worst_first(playwright, tmp_path):
    with opened(playwright, 'voila', tutorial('qualitative_results'), tmp_path/'log') as page:
        first = says(page, 'rank=0 ', 240_000)
        before = sources(page)
        press(page, 'rank', 'ArrowRight', 3)
        later = says(page, 'rank=3 ')
        iou = lambda text: float(re.search(r'IoU\[squared exponential\]=([\d.]+)', text)[1])
        assert iou(first) <= iou(later) and sources(page) != before
        choose(page, 'order', 'most uncertain first')
        page.wait_for_timeout(1500)
        photograph(page, 'browse')


def test_paint_learn_segment_correct_save(playwright, tmp_path):
    with opened(playwright, 'voila', tutorial('segment_your_images'), tmp_path/'log') as page:
        says(page, 'Paint the object')
        canvas = page.locator('canvas.deepgp-canvas').first
        canvas.wait_for()
        page.wait_for_function('() => document.querySelector("canvas.deepgp-canvas").width > 100')
        plain = pixel(page, canvas, .5, .5)
        stroke(page, canvas, [(.4, .5), (.6, .5)])
        assert pixel(page, canvas, .5, .5) != plain  # the stroke is on the screen
        page.click('button:has-text("undo")')
        as_before = ('old => { const c = document.querySelector("canvas.deepgp-canvas"); '
                     'const middle = c.getContext("2d").getImageData(c.width/2, c.height/2, 1, 1).data; '
                     'return [...middle].slice(0, 3).join() === old }')
        page.wait_for_function(as_before, arg=','.join(map(str, plain)))
        page.click('button:has-text("segment")')
        says(page, 'Nothing has been learnt')
        stroke(page, canvas, [(.3, .3), (.5, .5), (.4, .6)])
        page.click('button:has-text("erase")')
        stroke(page, canvas, [(.5, .5), (.52, .52)])
        page.click('button:has-text("learn this mask")')
        assert int(re.search(r'(\d+) pixels', says(page, 'shots=1'))[1]) > 50
        choose(page, 'image', 'coins 1')
        page.click('button:has-text("segment")')
        says(page, 'segmented coins 1')
        page.wait_for_function('() => [...document.querySelectorAll("img.widget-image")]'
                               '.filter(image => image.naturalWidth > 100).length >= 2')
        photograph(page, 'paint')
        mine = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
        Image.fromarray(mine).save(tmp_path/'mine.png')
        (tmp_path/'broken.jpg').write_text('not an image')
        with page.expect_file_chooser() as chooser: page.click('button:has-text("upload")')
        chooser.value.set_files([tmp_path/'broken.jpg', tmp_path/'mine.png'])
        says(page, 'broken.jpg cannot be read')
        page.wait_for_function('() => { const c = document.querySelector("canvas.deepgp-canvas"); '
                               'return c.width === 80 && c.height === 60 }')
        page.click('button:has-text("segment")')
        says(page, 'segmented mine.png')
        choose(page, 'image', 'coins 1')
        page.click('button:has-text("correct it")')
        page.click('button:has-text("paint")')
        says(page, 'correcting coins 1')
        stroke(page, canvas, [(.2, .2), (.3, .3)])
        page.click('button:has-text("learn this mask")')
        says(page, 'shots=2')
        page.click('button:has-text("save all")')
        says(page, 'saved:')
