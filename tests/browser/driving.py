"A tutorial in a real browser: a server on a free port of this machine, headless Chromium, and what to wait for"
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
         '--disable-component-update', '--disable-sync']
CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')


def free_port():
    with socket.socket() as s: s.bind(('127.0.0.1', 0)); return s.getsockname()[1]


@contextmanager
def served(kind, notebook, log):
    "A server for a copy of `notebook`, by 'voila' or 'lab', bound to the loopback interface"
    work, port = Path(tempfile.mkdtemp()), free_port()
    shutil.copy(notebook, work)
    settings = work/'settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings'
    settings.parent.mkdir(parents=True)
    settings.write_text('{"fetchNews": "false"}')  # otherwise a pop-up covers the page
    own = {name: str(work/name.lower()) for name in ('JUPYTER_CONFIG_DIR', 'IPYTHONDIR')}
    path = f'{Path(sys.executable).parent}:{os.environ["PATH"]}'
    env = os.environ | own | dict(JUPYTERLAB_SETTINGS_DIR=str(work/'settings'), TQDM_DISABLE='1', PATH=path)
    words = dict(voila=['-m', 'voila', str(work/notebook.name), '--Voila.ip=127.0.0.1'],
                 lab=['-m', 'jupyterlab', '--ip=127.0.0.1', '--allow-root',
                      f'--ServerApp.root_dir={work}', '--IdentityProvider.token=',
                      '--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate'])[kind]
    with open(log, 'w') as out:
        command = [sys.executable, *words, '--no-browser', f'--port={port}']
        server = subprocess.Popen(command, cwd=work, env=env, stdout=out, stderr=subprocess.STDOUT)
        address = f'http://127.0.0.1:{port}/' + ('api' if kind == 'lab' else 'voila/static/')
        try:
            for _ in range(400):
                assert server.poll() is None, f'the server died: {Path(log).read_text()[-2000:]}'
                try: urllib.request.urlopen(address, timeout=60).read(); break
                except urllib.error.HTTPError: break  # it answers
                except OSError: time.sleep(.25)
            yield port
        finally: server.terminate(); server.wait(30)


@contextmanager
def opened(playwright, kind, notebook, log):
    "A page with the notebook, all of its cells run; whatever it asks for outside of this machine is refused"
    with served(kind, notebook, log) as port, tempfile.TemporaryDirectory() as profile:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=CHROMIUM, headless=True, args=FLAGS, viewport=dict(width=1280, height=1000))
        page, here = context.pages[0], f'http://127.0.0.1:{port}'
        def only_here(route):
            if route.request.url.startswith((here, 'data:', 'blob:')): route.continue_()
            else: route.abort()
        context.route('**/*', only_here)
        path = f'lab/tree/{notebook.name}?reset' if kind == 'lab' else ''
        page.goto(f'{here}/{path}', wait_until='domcontentloaded', timeout=180_000)
        if kind == 'lab': run_all(page, port)
        yield page
        context.close()


def run_all(page, port):
    "Run every cell in JupyterLab: only once a kernel is connected, for before that the command is dropped"
    page.wait_for_selector('.jp-Notebook .jp-CodeCell', timeout=120_000)
    for _ in range(400):
        sessions = json.load(urllib.request.urlopen(f'http://127.0.0.1:{port}/api/sessions', timeout=30))
        if any(s['kernel']['connections'] > 0 and s['kernel']['execution_state'] == 'idle' for s in sessions): break
        page.wait_for_timeout(250)
    page.click('div.lm-MenuBar-itemLabel:text-is("Run")')
    page.click('.lm-Menu-itemLabel:text-is("Run All Cells")')


def says(page, text, timeout=120_000):
    "The status line, once it holds `text`"
    label = page.locator(f'.widget-label:has-text("{text}")').last
    label.wait_for(timeout=timeout)
    return label.inner_text()


def slider(page, name): return page.locator(f'.widget-inline-hbox:has(label:text-is("{name}")) .noUi-handle').first


def press(page, name, key, times=1):
    "Move a slider with the keyboard"
    handle = slider(page, name)
    handle.scroll_into_view_if_needed()
    handle.focus()
    for _ in range(times): page.keyboard.press(key)


def choose(page, name, option):
    "Pick an option of a dropdown"
    page.locator(f'.widget-inline-hbox:has(label:text-is("{name}")) select').first.select_option(label=option)


def stroke(page, canvas, points):
    "Drag the mouse over a canvas; points as shares of its width and height"
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    at = [(box['x'] + x*box['width'], box['y'] + y*box['height']) for x, y in points]
    page.mouse.move(*at[0])
    page.mouse.down()
    for p in at[1:]: page.mouse.move(*p, steps=8)
    page.mouse.up()


def pixel(page, canvas, x, y):
    "Colour of a canvas at a share of its width and height"
    script = '(c, [x, y]) => [...c.getContext("2d").getImageData(x*c.width, y*c.height, 1, 1).data].slice(0, 3)'
    return canvas.evaluate(script, [x, y])
