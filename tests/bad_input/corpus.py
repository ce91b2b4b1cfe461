"Malformed and hostile inputs at every door of the package: each is refused in one sentence, or simply works"
import atexit
import errno
import fcntl
import io
import json
import os
import pickle
import re
import resource
import runpy
import shutil
import signal
import struct
import sys
import tempfile
import warnings
import zlib
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import torchvision
from PIL import EpsImagePlugin, Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from scipy.io import savemat

from deepgp_fss import bench, bench_data, demo, evaluation, evidence, prepare, training
from deepgp_fss.datasets import folder_set, open_data
from deepgp_fss.folders import KINDS
from deepgp_fss.model import DeepGPNet, ModelConfig, load_checkpoint, save_checkpoint
from deepgp_fss.segmenter import FewShotSegmenter
from deepgp_fss.training import RunConfig, make_config
from harness import as_anybody
from layouts import make_coco, square


# ---- what a case is, and how it is tried

@dataclass
class Case:
    "One input, what is done with it, and what has to come of it"
    door:str                # where it comes in
    name:str                # what it is, in plain English
    do:object               # function of an empty folder: makes the input, and does what a user would do
    says:tuple = ()         # pieces of the sentence that refuses it: the thing and the remedy
    right:str = ''          # or, if it has to work: what the answer must be, which `do` asserts
    seconds:float = 600     # longer is a hang, on a loaded machine, too
    shown:str = ''          # what it said, for the table


CASES = []
def refused(door, name, do, *says, **more): CASES.append(Case(door, name, do, says, **more))
def works(door, name, right, do, **more): CASES.append(Case(door, name, do, right=right, **more))


class Refused(Exception):
    "A command ended with a status that is not zero; the message is what it wrote to the terminal"


class TooLong(BaseException):
    "Time is up; not an Exception, so that nothing on the way catches it"


class Began(BaseException):
    "Work began before everything was checked"


def before(where, name, do):
    "Do something that should be refused before the function `name` of a module is called"
    with patch.object(where, name, side_effect=Began(f'{name} began before the options were checked')): do()


@contextmanager
def time_limit(seconds):
    def stop(*_): raise TooLong(f'still not finished after {seconds} s')
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try: yield
    finally: signal.setitimer(signal.ITIMER_REAL, 0); signal.signal(signal.SIGALRM, before)


@contextmanager
def inside(folder):
    "Work in `folder`, with all caches in it; without TensorBoard and git, which only take time"
    before = os.getcwd()
    os.chdir(folder)
    try:
        with patch.dict(os.environ, DEEPGP_FSS_CACHE=f'{folder}/cache', TORCH_HOME=f'{folder}/torch', COLUMNS='500'), \
             patch.object(training, '_board', return_value=None), patch.object(training, 'git_state', return_value=None): yield
    finally: os.chdir(before)


def run(name, *words):
    "What a command prints, run in this process as its console script would; `Refused` if it ends with an error"
    out = io.TextIOWrapper(io.BytesIO(), 'utf-8', 'strict', write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), 'utf-8', 'backslashreplace', write_through=True)
    text = lambda f: f.buffer.getvalue().decode()
    try:
        with redirect_stdout(out), redirect_stderr(err), shown_warnings(), patch('sys.argv', [name, *map(str, words)]):
            runpy.run_path(str(script(name)), run_name='__main__')
    except SystemExit as e:
        if not e.code: return text(out)
        lines = [line for line in text(err).split('\n') if line and '\r' not in line]  # a carriage return is a progress bar
        if e.code == 2: lines = [line for line in lines if ': error: ' in line]  # below argparse's usage
        raise Refused('\n'.join([*lines, *([e.code] if isinstance(e.code, str) else [])])) from e
    return text(out)


@contextmanager
def shown_warnings():
    "Warnings go to the terminal, those that Python shows by default"
    with warnings.catch_warnings():
        warnings.simplefilter('always')
        warnings.filterwarnings('ignore', category=Image.DecompressionBombWarning)  # as `files` does when it is imported, which pytest undoes
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning): warnings.simplefilter('ignore', kind)
        warnings.showwarning = lambda message, kind, *_: print(f'{kind.__name__}: {message}', file=sys.stderr)
        yield


@cache
def script(name): return write(shared()/f'bin/{name}', f'from deepgp_fss.commands import {name}\n{name}()\n')


@cache
def shared():
    "A folder for what many cases use"
    folder = Path(tempfile.mkdtemp(prefix='bad_input_shared_')).resolve()
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def attempt(case):
    "Try a case in a folder of its own: None if it worked, or what was said; then what is left half-done. Anything else is raised"
    with tempfile.TemporaryDirectory(prefix='bad_input_', ignore_cleanup_errors=True) as name:
        at, said = Path(name).resolve(), None
        at.chmod(0o755)
        with inside(at), time_limit(case.seconds):
            try: case.do(at)
            except (Refused, ValueError) as e: said = str(e)
        case.shown = f'works: {case.right}' if said is None else said.replace(str(at), '...').replace(str(shared()), '...')
        return said, leftovers(at)


def leftovers(at):
    "Files that should not be there after a refusal; an index is built bit by bit and goes on from its .part, by design"
    results = 'model.safetensors', 'report.md', 'result.json', 'answer.json'
    return [str(p.relative_to(at)) for p in at.rglob('*') if p.is_file() and (p.suffix == '.part' and p.parent.name != 'deepgp_index' or
            p.is_relative_to(at/'out') and (p.name in results or p.suffix in ('.png', '.jpg', '.pdf')))]


def problems(case, said, left):
    "What is wrong with the outcome of a case, as a list of sentences"
    if case.right: return [] if said is None else [f'it has to work, but was refused: {said}']
    if said is None: return ['it was accepted']
    lines = said.split('\n')
    counted = re.search(rf'\b{len(lines) - 1} (file|thing)\(s\)', lines[-1])  # a line for each bad file, and then how many
    found = [what for what, wrong in (
        ('not one sentence', len(lines) != 1 and not counted), ('too long', max(map(len, lines)) > 600),
        ('a stack trace', 'Traceback' in said or ' at 0x' in said),
        ("Python's words", re.search(r'object is not|indices must be', re.sub(r'\(.*\)', '', said))),
        ('no sentence', ': error: ' not in said and not said.endswith(('.', '.)', '?', '}'))),
        ("only the system's words", re.search(r'^(deepgp_\w+: )?\[Errno', said, re.M)),
        *((f'it does not say {piece!r}', piece not in said) for piece in case.says), (f'left half-done: {left}', bool(left))) if wrong]
    return found and [*found, f'it says {said!r}']


def cell(text): return ' '.join(text.replace('|', '\\|').replace('<', '&lt;').split())


def write_table(path, cases=CASES):
    "Add what the cases said to the Markdown table in `path`; rows of cases that no longer exist are dropped"
    order = {(cell(c.door), cell(c.name)): i for i, c in enumerate(sorted(CASES, key=lambda c: c.door.lower()))}
    with open(path, 'a+', encoding='utf-8') as f:  # several processes may write, one after the other
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        rows = {tuple(r[:2]): r[2] for r in (line.strip('| \n').split(' | ', 2) for line in f if line.startswith('| ')) if tuple(r[:2]) in order}
        rows |= {(cell(c.door), cell(c.name)): cell(c.shown) for c in cases if c.shown}
        f.seek(0); f.truncate()
        f.write('| door | what was tried | what it says |\n|---|---|---|\n')
        f.writelines(f'| {door} | {name} | {rows[door, name]} |\n' for door, name in sorted(rows, key=order.get))


# ---- pictures and files

def scene(seed=0, height=64, width=64, label=1):
    "A coloured box before a noisy ground: image (H, W, 3) and mask (H, W), uint8"
    rng = np.random.default_rng([seed, 7])
    image, mask = rng.integers(90, 160, (height, width, 3)).astype(np.uint8), np.zeros((height, width), np.uint8)
    box = np.s_[height//8:max(1, 5*height//8), width//4:max(1, 3*width//4)]
    image[box], mask[box] = np.random.default_rng(label).integers(0, 256, 3), label
    return image, mask


def photo(seed=5, height=48, width=64): return Image.fromarray(scene(seed, height, width)[0])


def encoded(image, kind, **how):
    "The bytes of a picture"
    buffer = io.BytesIO()
    image.save(buffer, kind, **how)
    return buffer.getvalue()


def write(path, content):
    "Bytes, text or a picture (in the format of the name's ending) into a file"
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, np.ndarray): content = Image.fromarray(content)
    if isinstance(content, Image.Image): content.save(path)
    elif isinstance(content, str): path.write_text(content, encoding='utf-8')
    else: path.write_bytes(content)
    return path


def chunk(name, data): return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))


def png(width, height, depth, colours, rows, *more):
    "A PNG, chunk by chunk: colours 0 is grey, 2 RGB; rows are bytes, with the filter in front"
    head = struct.pack('>IIBBBBB', width, height, depth, colours, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + b''.join(chunk(*c) for c in ((b'IHDR', head), *more, (b'IDAT', zlib.compress(rows)), (b'IEND', b'')))


def changed(data, at, by):
    "Bytes with some of them replaced"
    return data[:at] + by + data[at + len(by):]


def turned(orientation):
    exif = Image.Exif()
    exif[0x112] = orientation
    return exif


@contextmanager
def without_rights(path, mode=0):
    "Take the rights to a file or folder away, from root as well"
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        with as_anybody(): yield
    finally: path.chmod(before)


@contextmanager
def little_memory(more=3 * 2**30):
    "At most 3 GB more than now, so that a bomb harms nobody"
    used = int(Path('/proc/self/statm').read_text().split()[0])*os.sysconf('SC_PAGE_SIZE')
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + more, before[1]))
    try: yield
    finally: resource.setrlimit(resource.RLIMIT_AS, before)


class Evil:
    "Leaves a file behind when it is unpickled"
    def __init__(self, marker): self.marker = str(marker)
    def __reduce__(self): return open, (self.marker, 'w')


def harmless(at, do):
    "Do something with a file that would leave a marker behind if it were executed"
    try: return do()
    finally: assert not (at/'executed').exists(), 'what is in the file was executed'


# ---- things that all cases share

@cache
def model():
    "A tiny checkpoint, never trained, whose masks are neither empty nor full"
    torch.manual_seed(5)
    net = DeepGPNet(ModelConfig('small', 16, (8,), encoding_dim=8, decoder_width=16)).eval()
    path = save_checkpoint(shared()/'model/model.safetensors', net, run=dict(recipe=dict(size=64, shots=1)))
    path.chmod(0o644)
    return path


@cache
def support():
    "Two photographs with masks"
    for i in range(2):
        image, mask = scene(i)
        write(shared()/f'support/{i}.jpg', image), write(shared()/f'support/{i}.png', mask)
    return shared()/'support'


@cache
def folder():
    "A data set with label maps: 12 images of 48x40, 4 classes"
    root = shared()/'folder'
    for i in range(12):
        image, mask = scene(i, 40, 48, 1 + i % 4)
        write(root/f'images/{i:02}.jpg', image), write(root/f'masks/{i:02}.png', mask)
    write(root/'classes.txt', 'one\ntwo\nthree\nfour\n')
    return root


@cache
def class_folders():
    "A data set with one class to a folder: 4 classes of 3 images"
    for i in range(12):
        image, mask = scene(i, 40, 48)
        write(shared()/f'classes/class{i % 4}/{i}.jpg', image), write(shared()/f'classes/class{i % 4}/{i}.png', 255*mask)
    return shared()/'classes'


@cache
def voc():
    "A part of PASCAL: images of two classes for training, of two others for validation (they belong to fold 0)"
    root, names = shared()/'voc', dict(train=[], val=[])
    for i in range(12):
        split, name = ('train', 'val')[i % 2], f'2007_{i:06}'
        image, mask = scene(i, 40, 48, (6, 1)[i % 2] + i//2 % 2)
        write(root/f'JPEGImages/{name}.jpg', image), write(root/f'SegmentationClassAug/{name}.png', mask)
        names[split].append(name)
    for split in names: write(root/f'{split}.txt', '\n'.join(names[split]) + '\n')
    return root


@cache
def coco():
    "COCO as it is unpacked"
    for split in ('train', 'val'): make_coco(shared()/'coco', split)
    return shared()/'coco'


@cache
def built_coco():
    root = copied(coco(), shared()/'coco_built')
    run('deepgp_data', 'build', 'coco', root)
    return root


@cache
def backbone():
    "Weights of a ResNet-18 that was never trained"
    torch.manual_seed(0)
    state = torchvision.models.resnet18().state_dict()
    save_file(state, shared()/'resnet18.safetensors')
    return shared()/'resnet18.safetensors'


@cache
def trained():
    "A finished run of two steps"
    train(shared(), '--out', shared()/'run', '--iterations', 2)
    return shared()/'run'


def copied(source, target): shutil.copytree(source, target, symlinks=True); return target


# ---- what users do

def segment(at, *queries, known=None, by=None, out='out', more=()):
    return run('deepgp_segment', '--support', known or support(), '--query', *queries, '--out', at/out, '--model', by or model(), '--cpu', *more)


def query(at, name, content): return segment(at, write(at/f'new/{name}', content))


def answers(at, contents):
    "Mask, overlay and variance that come out for photographs, by name"
    files = [write(at/f'new/{name}', content) for name, content in contents.items()]
    segment(at, *files, out='answers')
    names = {Path(row['file']): row['result'] for row in json.loads((at/'answers/summary.json').read_text())['images']}
    return [[np.array(Image.open(at/f'answers/{kind}/{names[file]}{end}')) for kind, end in KINDS.items()] for file in files]


def same(at, name, content, like, tolerance=0):
    "The same answer as for another picture, a PNG of which is made"
    mine, theirs = answers(at, {name: content, 'like.png': like})
    for a, b in zip(mine, theirs): assert a.shape == b.shape and np.abs(a.astype(int) - b).mean() <= tolerance, name


def mask_of(at, content, image=None, more=()):
    "Segment with this as the mask of one of the two photographs"
    known = copied(support(), at/'known')
    if image is not None: write(known/'1.jpg', image)
    write(known/'1.png', content)
    return segment(at, write(at/'new/a.png', photo()), known=known, more=more)


TRAIN = ('--data n_train=60 n_val=60 side=48 --iterations 1 --batch 1 --shots 1 --size 48 --backbone small --scales 8 --dim 16 --encoding_dim 8 '
         '--decoder_width 16 --picture_every 0 --cpu').split()
EVALUATE = '--dataset shapes --data n_val=60 side=48 --size 48 --shots 1 --episodes 2 --plain --cpu'.split()


def train(at, *words): return run('deepgp_train', *TRAIN, '--out', at/'out', *words)
def evaluate(at, *words): return run('deepgp_eval', model(), *EVALUATE, '--out', at/'out', *words)
def train_on(at, name, root, *data): return train(at, '--recipe', 'shapes', '--dataset', name, '--root', root, '--data', 'min_area=50', *data)
def evaluate_on(at, name, root, *data, more=()): return evaluate(at, '--dataset', name, '--root', root, '--data', 'min_area=50', *data, *more)
def check(name, root, *words): return run('deepgp_data', 'check', name, root, '--part', '--workers', 1, *words)


# ---- photographs to segment

JPEG, PNG = encoded(photo(), 'JPEG'), encoded(photo(), 'PNG')
DAMAGED = 'cannot be read as an image', 'replace or remove it', '1 file(s) could not be segmented'
for name, file, content in (
    ('an empty file', 'empty.jpg', b''), ('a file of zeros', 'zeros.png', bytes(500)),
    ('the page of an error, saved as a photograph', 'page.jpg', b'<html>404 Not Found</html>'),
    ('a JPEG cut off in the middle', 'cut.jpg', JPEG[:len(JPEG)//2]), ('a JPEG of which only the header has arrived', 'header.jpg', JPEG[:20]),
    ('a PNG cut off in the middle', 'cut.png', PNG[:len(PNG)//2]), ('a GIF cut off in the middle', 'cut.gif', encoded(photo(), 'GIF')[:900]),
    ('a WebP cut off in the middle', 'cut.webp', encoded(photo(), 'WEBP')[:200]), ('a TIFF cut off in the middle', 'cut.tif', encoded(photo(), 'TIFF')[:900]),
    ('a BMP cut off in the middle', 'cut.bmp', encoded(photo(), 'BMP')[:900]),
    ('a PNG with a wrong checksum of its header', 'checksum.png', changed(PNG, 18, b'\1')),
    ('a PNG whose pixels are damaged', 'pixels.png', changed(PNG, 60, b'\0\0\0\0')), ('a PNG of 0x0 pixels', 'nothing.png', png(0, 0, 8, 0, b'')),
    ('a PNG without pixels after its header', 'bare.png', PNG[:33] + chunk(b'IEND', b'')),
    ('an HEIC of a phone, named .jpg', 'phone.jpg', b'\0\0\0\x18ftypheic\0\0\0\0mif1heic' + bytes(400)),
    ('an SVG drawing, named .png', 'drawing.png', b'<svg xmlns="http://www.w3.org/2000/svg" width="5" height="5"/>'),
    ('a PDF, named .jpg', 'paper.jpg', b'%PDF-1.4\n1 0 obj\n<<>>\nendobj'),
    ('a PNG that declares 20,000x20,000 pixels', 'huge.png', png(20_000, 20_000, 8, 2, bytes(100))),
    ('a BMP with a height of minus two thousand million', 'negative.bmp', changed(encoded(photo(), 'BMP'), 22, struct.pack('<i', -2**31))),
    ('a PNM that declares ten thousand million pixels', 'huge.jpg', b'P6 99999 99999 255\n1234'),
    ('a cut PNG that declares 13,000x13,000 pixels', 'large.png', png(13_000, 13_000, 1, 0, bytes(100))),
    ('a PNG with 50 MB of text packed into 50 kB', 'text.png', png(4, 4, 8, 0, b'\0abcd'*4, (b'zTXt', b'Comment\0\0' + zlib.compress(bytes(50_000_000)))))):
    refused('image', name, partial(query, name=file, content=content), file, *DAMAGED)
refused('image', 'a decompression bomb: 16,000x16,000 pixels in 32 kB', lambda at: query(at, 'bomb.png', png(16_000, 16_000, 1, 0, bytes(2001*16_000))),
        'bomb.png', *DAMAGED)
for values, name in ((np.nan, 'not a number'), (100., 'up to 100')):
    refused('image', f'a floating TIFF whose values are {name}', partial(query, name='f.tif', content=Image.fromarray(np.full((20, 30), values, np.float32))),
            'f.tif', 'scale it to 0 to 1')


def postscript(at):
    program = write(at/'bin/gs', f'#!/bin/sh\ntouch {at}/executed\n')
    program.chmod(0o755)
    with patch.dict(os.environ, PATH=f'{at}/bin:{os.environ["PATH"]}'), patch.object(EpsImagePlugin, 'gs_binary', None):
        harmless(at, lambda: query(at, 'program.jpg', b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n'))
refused('image', 'a PostScript program, named .jpg', postscript, 'program.jpg', 'replace or remove it')


def pipe(at): os.mkfifo(at/'pipe.jpg'); segment(at, at/'pipe.jpg')
refused('image', 'a named pipe into which nobody writes', pipe, 'pipe.jpg', seconds=2)
refused('image', 'a device that never ends', lambda at: segment(at, '/dev/zero'), '/dev/zero', 'replace or remove it', seconds=10)
refused('image', 'a file that is not there', lambda at: segment(at, at/'gone.jpg'), 'gone.jpg does not exist')


def link(at, target):
    (at/'new').mkdir()
    (at/'new/link.jpg').symlink_to(target)
    return at/'new/link.jpg'
refused('image', 'a symbolic link to itself', lambda at: segment(at, link(at, 'link.jpg')), 'link.jpg does not exist')
refused('image', 'a folder with nothing but a dangling link', lambda at: segment(at, link(at, 'gone.jpg').parent), 'There are no images in', '/new')
refused('image', 'an empty folder', lambda at: ((at/'new').mkdir(), segment(at, at/'new')), 'There are no images in', '/new')


def unreadable_photo(at):
    file = write(at/'new/secret.jpg', JPEG)
    (at/'out').mkdir(); (at/'out').chmod(0o777); model(), support()
    with without_rights(file): segment(at, file)
refused('image', 'a photograph that may not be read', unreadable_photo, 'secret.jpg', 'Permission denied')
refused('image', 'a damaged photograph with a line break in its name', lambda at: query(at, 'two\nlines.jpg', b''), 'lines.jpg', 'replace or remove it')
refused('image', 'a name so long that its results cannot be written', lambda at: query(at, 'a'*251 + '.jpg', JPEG), 'aaa.jpg',
        'cannot be written (File name too long)')


def one_of_two(at):
    good, bad = write(at/'new/good.jpg', JPEG), write(at/'new/bad.jpg', JPEG[:300])
    try: segment(at, good, bad, out='both')
    finally:
        rows = json.loads((at/'both/summary.json').read_text())['images']
        assert [p.name for p in (at/'both/masks').iterdir()] == ['good.png'] and ['error' in row for row in rows] == [True, False]
refused('image', 'one damaged photograph beside a good one, which is segmented', one_of_two, 'bad.jpg', *DAMAGED)


def grey(): return np.array(photo().convert('L'))
def clear():
    image = photo().convert('RGBA')
    image.putalpha(Image.fromarray(np.where(np.arange(64) < 20, 0, 255).astype(np.uint8)*np.ones((48, 1), np.uint8)))
    return image
def on_white(): return Image.alpha_composite(Image.new('RGBA', (64, 48), 'white'), clear()).convert('RGB')
def frames(*size): return dict(save_all=True, append_images=[photo(6, *size), photo(7, *size)])
def few(): return photo().quantize(16)


for name, right, file, content, like, tolerance in (
    ('a CMYK TIFF', 'as the same picture in RGB', 'print.tif', encoded(photo().convert('CMYK'), 'TIFF'), photo(), 0),
    ('a CMYK JPEG, as printers want it', 'close to the same picture in RGB', 'print.jpg', encoded(photo().convert('CMYK'), 'JPEG', quality=100, subsampling=0),
     photo(), 4),
    ('a grey PNG of 16 bits', 'as the same picture of 8 bits', 'deep.png', encoded(Image.fromarray(grey().astype(np.uint16)*257), 'PNG'), grey(), 0),
    ('a grey TIFF of 16 bits, the high byte first', 'as the same picture of 8 bits', 'deep.tif',
     encoded(Image.frombytes('I;16B', (64, 48), (grey().astype('>u2')*257).astype('>u2').tobytes()), 'TIFF'), grey(), 0),
    ('an RGB PNG of 16 bits', 'as the same picture of 8 bits', 'deep.png',
     png(64, 48, 16, 2, b''.join(b'\0' + (r.astype('>u2')*257).astype('>u2').tobytes() for r in np.array(photo()))), photo(), 0),
    ('a floating TIFF from 0 to 1', 'as the same picture of 8 bits', 'float.tif', encoded(Image.fromarray((grey()/255).astype(np.float32)), 'TIFF'), grey(), 0),
    ('an animated GIF', 'as its first frame', 'film.gif', encoded(few(), 'GIF', save_all=True, append_images=[photo(6).quantize(16)]), few().convert('RGB'), 0),
    ('an animated WebP', 'as its first frame', 'film.webp', encoded(photo(), 'WEBP', lossless=True, **frames()), photo(), 0),
    ('an animated PNG', 'as its first frame', 'film.png', encoded(photo(), 'PNG', **frames()), photo(), 0),
    ('a TIFF of several pages', 'as its first page', 'pages.tif', encoded(photo(), 'TIFF', **frames()), photo(), 0),
    ('a PNG named .jpg', 'as if it were named .png', 'really_png.jpg', PNG, photo(), 0),
    ('a PNG without any ending', 'as if it were named .png', 'photograph', PNG, photo(), 0),
    ('a PNG that is partly transparent', 'as on white paper', 'clear.png', clear(), on_white(), 0),
    ('a PNG with a palette', 'as the same colours without', 'palette.png', few(), few().convert('RGB'), 0),
    ('a PNG of one bit', 'as the same picture in grey', 'bits.png', photo().convert('1'), photo().convert('1').convert('L'), 0),
    ('a JPEG with garbage after its end', 'as without the garbage', 'more.jpg', JPEG + b'garbage'*100, Image.open(io.BytesIO(JPEG)), 0),
    ('a PNG with EXIF data that are no EXIF data', 'as without them', 'exif.png', encoded(photo(), 'PNG', exif=b'garbage'), photo(), 0),
    ('a PNG whose EXIF data ask for orientation 9, which does not exist', 'as it lies', 'ninth.png', encoded(photo(), 'PNG', exif=turned(9)), photo(), 0),
    ('a PNG with a colour profile that is none', 'as without it', 'profile.png', encoded(photo(), 'PNG', icc_profile=b'no profile at all'), photo(), 0),
    ('a PNG that EXIF data turn by 90 degrees', 'the mask stands as people see the picture', 'turned.png', encoded(photo(), 'PNG', exif=turned(6)),
     photo().transpose(Image.Transpose.ROTATE_270), 0),
    ('a PNG that EXIF data mirror and turn', 'the mask stands as people see the picture', 'mirrored.png', encoded(photo(), 'PNG', exif=turned(5)),
     photo().transpose(Image.Transpose.TRANSPOSE), 0),
    ('two pictures in one file, as some phones write them', 'as the first one', 'phone.jpg', encoded(photo(), 'MPO', save_all=True, append_images=[photo(6)]),
     Image.open(io.BytesIO(JPEG)), 0)):
    works('image', name, right, partial(same, name=file, content=content, like=like, tolerance=tolerance))


def has_size(at, height, width): assert {a.shape[:2] for a in answers(at, {'a.png': photo(5, height, width)})[0]} == {(height, width)}
works('image', 'a photograph of one pixel', 'a mask of one pixel', lambda at: has_size(at, 1, 1))
works('image', 'a photograph of 3,000x1 pixels', 'a mask of 3,000x1 pixels', lambda at: has_size(at, 1, 3000))


def odd_folder(at):
    for file in ('.hidden.jpg', 'Thumbs.db', 'notes.txt', 'sub/deeper.jpg'): write(at/f'new/{file}', b'no image')
    write(at/'new/ONE.JPG', JPEG)
    segment(at, at/'new')
    assert [p.name for p in (at/'out/masks').iterdir()] == ['ONE.png']
works('image', 'a folder with hidden files, notes and a folder in it', 'its one photograph is segmented, ONE.JPG', odd_folder)


def foreign(at):
    answers(at, {os.fsdecode(b'caf\xe9.jpg'): JPEG})
    assert [os.fsencode(p.name) for p in (at/'answers/masks').iterdir()] == [b'caf\xe9.png']
works('image', 'a name that is no UTF-8', 'its results have the same name', foreign)


# ---- the folder with the support set

def known(at, change):
    "Segment with a support folder in which something was changed"
    folder = copied(support(), at/'known')
    change(folder)
    segment(at, write(at/'a.jpg', JPEG), known=folder)


def becomes(path, make): path.unlink(); make(path)


refused('support', 'a folder that is not there', lambda at: segment(at, write(at/'a.jpg', JPEG), known=at/'gone'), 'gone is no folder',
        '--support takes the folder')
refused('support', 'a file instead of a folder', lambda at: segment(at, write(at/'a.jpg', JPEG), known=at/'a.jpg'), 'a.jpg is no folder',
        '--support takes the folder')
refused('support', 'an empty folder', lambda at: known(at, lambda d: [p.unlink() for p in d.iterdir()]), 'known holds no photographs', 'it should have')
refused('support', 'a folder with nothing but masks', lambda at: known(at, lambda d: [p.unlink() for p in d.glob('*.jpg')]), 'known holds no photographs',
        'it should have')
refused('support', 'a photograph without a mask', lambda at: known(at, lambda d: (d/'1.png').unlink()), '1.jpg', '1.png should be there')
refused('support', 'a mask that is a link to itself', lambda at: known(at, lambda d: becomes(d/'1.png', lambda p: p.symlink_to(p.name))),
        '1.png should be there')
refused('support', 'a mask that is a named pipe', lambda at: known(at, lambda d: becomes(d/'1.png', os.mkfifo)), '1.png', seconds=2)
refused('support', 'a damaged photograph', lambda at: known(at, lambda d: write(d/'1.jpg', JPEG[:300])), '1.jpg cannot be read', 'replace or remove it')
refused('support', 'two photographs, 1.jpg and 1.jpeg, with one mask between them', lambda at: known(at, lambda d: write(d/'1.jpeg', scene(9)[0])), '1.jpeg')


# ---- masks of the support set

MASK = scene(1)[1]
soft = np.clip(np.add.outer(np.arange(64), np.arange(64))*3 - 60, 0, 255).astype(np.uint8)
colours = np.zeros((64, 64, 3), np.uint8); colours[20:40, 20:40] = 200, 30, 90
behind = np.zeros((64, 64, 4), np.uint8); behind[20:40, 20:40, 3] = 255
cut_out = np.dstack([scene(1)[0], 255*np.roll(MASK, 8, 1)])
trimap = np.where(MASK, 1, np.where(np.arange(64) < 5, 3, 2)).astype(np.uint8)
for name, content, *says in (
    ('a mask of another size', MASK[:50], '1.png is 64x50', 'a mask has the size of its image'),
    ('a mask in colours', colours, '1.png holds colours', 'save it in grey'),
    ('a mask that is empty', MASK*0, '1.png is empty', 'must show the object'),
    ('a mask with soft edges that is nowhere quite white', np.minimum(soft, 250), '1.png', 'grey values', 'make it black and white first'),
    ('a mask with soft edges', soft, '1.png', 'grey values', 'make it black and white first'),
    ('a mask saved as JPEG and named .png', encoded(Image.fromarray(np.where(np.add.outer(np.arange(64), np.arange(64)) % 40 < 20, 255, 0).astype(np.uint8)),
                                                    'JPEG', quality=30),
     '1.png', 'grey values', 'make it black and white first'),
    ('a floating mask with values that are no numbers', encoded(Image.fromarray(np.where(MASK > 0, np.nan, 0).astype(np.float32)), 'TIFF'), '1.png',
     'give True and False'),
    ('a floating mask with halves in it', encoded(Image.fromarray((MASK*.5).astype(np.float32)), 'TIFF'), '1.png', 'give True and False'),
    ('a mask of 16 bits, white being 65,535', Image.fromarray(MASK.astype(np.uint16)*65535), '1.png', 'from 0 to 255'),
    ('a mask with label 300', Image.fromarray(MASK.astype(np.uint16)*300), '1.png', 'from 0 to 255'),
    ('a mask cut off in the middle', encoded(Image.fromarray(scene()[0][..., 0]), 'PNG')[:500], '1.png cannot be read', 'replace or remove it'),
    ('an empty file as mask', b'', '1.png cannot be read', 'replace or remove it'),
    ('a mask with one grey between black and white', 255*MASK - 127*MASK*np.eye(64, dtype=np.uint8), '1.png has 3 grey values', '--threshold 128'),
    ('a mask that is white everywhere', MASK*0 + 255, '1.png is 255 everywhere', '--foreground 255'),
    ('a raw trimap: 1 the object, 2 the background, 3 the border', trimap, '1.png holds 1, 2, 3 and no background', '--foreground and --ignore'),
    ('a photograph cut out by its transparency, as mask', cut_out, '1.png', 'alpha channel', 'save the one that is meant'),
    ('the photograph itself as mask', Image.fromarray(scene(1)[0]), '1.png holds colours', 'save it in grey')):
    refused('mask', name, partial(mask_of, content=content), *says)
dot = np.zeros((700, 700), np.uint8); dot[1, 1] = 2
refused('mask', 'an object of one pixel in a photograph of 700x700', lambda at: mask_of(at, dot, scene(1, 700, 700)[0]), '1.png vanishes', 'use a larger size')
refused('mask', 'a mask drawn on a photograph as it lies, which EXIF data turn',
        lambda at: mask_of(at, scene(1, 48, 64)[1], encoded(photo(1), 'JPEG', exif=turned(6))),
        '1.png is 64x48, but its image is 48x64', 'a mask has the size of its image')
refused('mask', 'a class named on the command line that no mask shows', lambda at: mask_of(at, MASK, more=('--classes', 'cat', 'dog')), '--classes', 'dog')


def learns(at, content, labels):
    mask_of(at, content)
    assert json.loads((at/'out/summary.json').read_text())['labels'] == labels
def palette(labels):
    image = Image.fromarray(labels).convert('P')
    image.putpalette([v for i in range(256) for v in (i, 255 - i, i//2)])
    image.putdata(labels.ravel().tolist())
    return image
works('mask', 'a mask that is 1 everywhere', 'the object is everywhere', lambda at: learns(at, MASK*0 + 1, [1]))
works('mask', 'a mask whose object is only in its transparency', 'what is opaque is the object', lambda at: learns(at, behind, [1]))
works('mask', 'a mask in black and white', 'white is the object', lambda at: learns(at, 255*MASK, [1]))
works('mask', 'a mask of one bit', 'white is the object', lambda at: learns(at, Image.fromarray(MASK > 0), [1]))
def shows(at, content):
    "The object is where it is in the other mask, and nowhere else"
    learns(at, content, [1])
    assert f'label 1 on {100*MASK.mean():.1f}% of the pixels' in json.loads((at/'out/summary.json').read_text())['masks']
def white_first():
    image = Image.fromarray(1 - MASK).convert('P')
    image.putdata((1 - MASK).ravel().tolist()); image.putpalette([255]*3 + [0]*3)
    return image
works('mask', 'a palette of white and black, white first', 'white is the object', lambda at: shows(at, white_first()))
works('mask', 'a mask with label 7 beside 255', '7 is a label, 255 is not counted',
      lambda at: learns(at, np.where(MASK, 7, np.where(np.arange(64) < 5, 255, 0)).astype(np.uint8), [1, 7]))
works('mask', 'a mask of labels with a palette', 'the labels count, not their colours', lambda at: learns(at, palette(MASK*9), [1, 9]))
works('mask', 'a mask of labels of 16 bits', 'the labels are kept', lambda at: learns(at, Image.fromarray(MASK.astype(np.uint16)*9), [1, 9]))


# ---- arrays, in a notebook

def segmenter(): return FewShotSegmenter(load_checkpoint(model()), 64, 'cpu')
def fitted(): return segmenter().fit(*zip(scene(0), scene(1)))
def predict(x): return lambda at: fitted().predict(x)
def fit(*masks): return lambda at: segmenter().fit([scene(i)[0] for i in range(len(masks))], masks)
for name, do, *says in (
    ('None as image', predict(None), 'image 0 is a NoneType', 'give a path'),
    ('lists of lists as image', predict([[1, 2], [3, 4]]), 'image 0 is a list', 'give a path'),
    ('a batch of images as image', predict(torch.zeros(1, 3, 8, 8)), 'image 0 has shape (1, 3, 8, 8)', 'must be'),
    ('an image without pixels', predict(np.zeros((0, 5, 3), np.uint8)), 'image 0', 'not empty'),
    ('floating values up to 255', predict(scene()[0].astype(float)), 'image 0', 'scale it to 0 to 1'),
    ('an image with one value that is no number', predict(np.array([[.5, np.nan]])), 'image 0', 'no numbers'),
    ('an image of 64-bit numbers', predict(scene()[0].astype(int)), 'image 0', 'use uint8'),
    ('an image of texts', predict(np.array([['a', 'b']])), 'image 0', 'use uint8'),
    ('a mask that is no number anywhere', fit(MASK, np.where(MASK, np.nan, 0)), 'the mask of image 1', 'give True and False'),
    ('a mask of infinities', fit(np.where(MASK, np.inf, 0)), 'the mask of image 0', 'give True'),
    ('a mask with negative labels', fit(-MASK.astype(int)), 'the mask of image 0', 'from 0 to 255'),
    ('a mask of texts', fit(MASK.astype(str)), 'the mask of image 0', 'give True and False'),
    ('a mask for each colour', fit(np.dstack([MASK]*3)), 'the mask of image 0', 'must be (H, W)'),
    ('None as mask', fit(None), 'the mask of image 0', 'must be (H, W)'),
    ('more images than masks', lambda at: segmenter().fit([scene()[0]]*2, [MASK]), '2 images and 1 masks', 'each image needs its mask'),
    ('no images at all', lambda at: segmenter().fit([], []), 'nothing to learn from', 'give at least one'),
    ('a question before anything was learnt', lambda at: segmenter().predict(scene()[0]), 'call fit'),
    ('an image to forget that is not there', lambda at: fitted().remove(7), 'no image 7'),
    ('a batch of no images', lambda at: fitted().predict_many([scene()[0]], 0), 'batch must be at least 1'),
    ('a window of 31 pixels', lambda at: FewShotSegmenter(load_checkpoint(model()), 31, 'cpu'), 'size must be at least 32'),
    ('a device that does not exist', lambda at: FewShotSegmenter(load_checkpoint(model()), 64, 'abacus'), 'abacus'),
    ('a GPU that is not there', lambda at: FewShotSegmenter(load_checkpoint(model()), 64, 'cuda:99'), 'cuda:99'),
    ('a segmenter saved as .pt', lambda at: fitted().save(at/'known.pt'), 'known.pt', '.safetensors'),
    ('an unknown learner', lambda at: FewShotSegmenter.training_free(backbone(), 'resnet18', 64, 'cpu', learner='oracle'), "'oracle'", 'choose one of')):
    refused('array', name, do, *says)


# ---- photographs and label maps of a data set

def changed_folder(at, change, source=None):
    "A data set in which something was changed, under another name"
    root = copied(source or folder(), at/'data')
    change(root)
    return root


def in_data(file, content, name='folder', source=folder):
    "Look at a data set with another content of one of its files"
    return lambda at: check(name, changed_folder(at, lambda d: write(d/file, content), source()))


DRAWN = scene(3, 40, 48, 4)[1]
negative = Image.fromarray(np.where(DRAWN, -3, 0).astype(np.int32))
for name, do, *says in (
    ('a photograph cut off in the middle', in_data('images/03.jpg', JPEG[:300]), '03.jpg cannot be read', 'replace or remove it'),
    ('a photograph of another size than its label map', in_data('images/03.jpg', scene(3)[0]), '03.jpg is 64x64', 'its mask 03.png is 48x40'),
    ('a label map in colours', in_data('masks/03.png', scene(3, 40, 48)[0]), '03.png holds colours', 'as a palette PNG'),
    ('a label map of 16 bits with label 300', in_data('masks/03.png', Image.fromarray(DRAWN.astype(np.uint16)*75)), '03.png holds values that are not labels, such as 300', '0 to 255'),
    ('a label map with a label that no class has', in_data('masks/03.png', DRAWN*2), '03.png holds label 8', 'only 4 classes'),
    ('a label map with a negative label', in_data('masks/03.png', encoded(negative, 'TIFF')), '03.png', '-3'),
    ('a floating label map of values that are no numbers', in_data('masks/03.png', encoded(Image.fromarray(np.full((40, 48), np.nan, np.float32)), 'TIFF')),
     '03.png holds values that are not labels, such as nan'),
    ('a label map that is an empty file', in_data('masks/03.png', b''), '03.png cannot be read', 'replace or remove it'),
    ('a mask of one class that is empty', in_data('class3/3.png', DRAWN*0, source=class_folders), '3.png is empty'),
    ('a mask of one class that is damaged', in_data('class3/3.png', PNG[:200], source=class_folders), '3.png cannot be read', 'replace or remove it'),
    ('a mask of one class with soft edges', in_data('class3/3.png', 255*(DRAWN > 0).astype(np.uint8) - 90*np.eye(40, 48, dtype=np.uint8)*(DRAWN > 0), source=class_folders),
     '3.png has 3 grey values', '--threshold 128'),
    ('a raw trimap in a folder of one class', in_data('class3/3.png', 1 + (DRAWN > 0).astype(np.uint8), source=class_folders), '3.png holds 1, 2 and no background', '--foreground'),
    ('two labels in a folder of one class', in_data('class3/3.png', DRAWN//4 + np.eye(40, 48, dtype=np.uint8)*DRAWN//4, source=class_folders), '3.png holds the labels 1, 2',
     'one class', '--foreground'),
    ('255 the object in one mask, and not counted in another', in_data('class3/3.png', np.where(DRAWN, 1, 255*np.eye(40, 48)).astype(np.uint8), source=class_folders),
     '255 is the object in', 'make them alike'),
    ('label maps of 0 and 255', lambda at: check('folder', changed_folder(at, lambda d: [write(d/f'masks/{i:02}.png', np.where(DRAWN, 255, 0).astype(np.uint8)) for i in range(12)])),
     '12 of 12 label maps', 'show no class', 'save the object as 1'),
    ('a mask of one class of another size', in_data('class3/3.png', MASK, source=class_folders), '3.jpg is 48x40', '3.png is 64x64')):
    refused('data file', name, do, *says)


def held(at, names): return f'test_classes={write(at/"held.txt", names)}'
def trains_on(change):
    "Train on a changed folder, holding the class `four` out"
    return lambda at: train_on(at, 'folder', changed_folder(at, change), held(at, 'four'))


refused('data file', 'a photograph that is damaged, met in training', trains_on(lambda d: [write(d/f'images/{i:02}.jpg', JPEG[:300]) for i in range(12)]),
        'Episode 0', 'cannot be read', 'replace or remove it')
refused('data file', 'a photograph of another size, met in training', trains_on(lambda d: [write(d/f'images/{i:02}.jpg', scene(i)[0]) for i in range(12)]),
        'Episode 0', 'is 64x64', 'is 48x40')
refused('data file', 'label maps that are 255 everywhere', trains_on(lambda d: [write(d/f'masks/{i:02}.png', DRAWN*0 + 255) for i in range(12)]),
        '12 of 12 label maps', 'show no class, only 255', '--ignore 255')
refused('data file', 'a name with a line break', trains_on(lambda d: [p.rename(p.with_stem('two\nlines')) for p in (d/'images/03.jpg', d/'masks/03.png')]),
        "'two\\nlines'", 'rename the file')
refused('data file', 'two photographs with the same name, 03.jpg and 03.jpeg',
        lambda at: check('folder', changed_folder(at, lambda d: write(d/'images/03.jpeg', scene(9, 40, 48)[0]))), '03.jpeg')


def reads(file, content, picture):
    def do(at):
        images = folder_set(changed_folder(at, lambda d: ((d/'images/03.jpg').unlink(), write(d/file, content))))
        found = images.image([item.name for item in images.items].index('03'))
        assert found.shape == (40, 48, 3) and np.abs(found.astype(int) - np.array(picture.convert('RGB'))).max() <= 1
    return do


upright = Image.fromarray(scene(3, 40, 48)[0])
works('data file', 'a photograph in CMYK', 'as the same picture in RGB', reads('images/03.tif', upright.convert('CMYK'), upright))
works('data file', 'a photograph of 16 bits', 'as the same picture of 8 bits',
      reads('images/03.png', Image.fromarray(np.array(upright.convert('L')).astype(np.uint16)*257), upright.convert('L')))
works('data file', 'a photograph of floating values from 0 to 1', 'as the same picture of 8 bits',
      reads('images/03.tif', Image.fromarray((np.array(upright.convert('L'))/255).astype(np.float32)), upright.convert('L')))
works('data file', 'an animated photograph', 'its first frame', reads('images/03.webp', encoded(upright, 'WEBP', lossless=True, **frames(40, 48)), upright))
works('data file', 'a photograph that EXIF data turn, its label map drawn upright', 'the photograph stands upright',
      reads('images/03.png', encoded(upright.transpose(Image.Transpose.ROTATE_90), 'PNG', exif=turned(6)), upright))
works('data file', 'a photograph that EXIF data turn, its label map drawn as it lies', 'the photograph lies as its label map does',
      reads('images/03.png', encoded(upright, 'PNG', exif=turned(6)), upright))


# ---- lists of images, names of classes

def listed(content):
    "Look at the images of PASCAL that a list names"
    return lambda at: check('pascal', voc(), '--train_list', write(at/'list.txt', content))


NAMES = [f'2007_{i:06}' for i in range(0, 12, 2)]
for name, do, *says in (
    ('a list that is not there', lambda at: check('pascal', voc(), '--train_list', at/'gone.txt'), 'gone.txt cannot be read', 'No such file'),
    ('a folder instead of a list', lambda at: check('pascal', voc(), '--train_list', at), 'cannot be read', 'Is a directory'),
    ('a list that is a link to itself', lambda at: ((at/'list.txt').symlink_to('list.txt'), check('pascal', voc(), '--train_list', at/'list.txt')),
     'list.txt cannot be read', 'symbolic links'),
    ('a list without names', listed('# nothing\n\n'), 'list.txt'),
    ('a list that names an image twice', listed('\n'.join(NAMES[:2]*2)), f'list.txt lists {NAMES[0]} twice'),
    ('a list in UTF-16', listed('\n'.join(NAMES).encode('utf-16')), 'list.txt is not text in UTF-8'),
    ('a photograph as list', listed(JPEG), 'list.txt is not text in UTF-8'),
    ('a list that names an image that is not there', listed('2007_999999\n'), '2007_999999.jpg does not exist'),
    ('a list that climbs out of the root', listed('../../../../etc/passwd\n'), 'JPEGImages/passwd.jpg does not exist'),
    ('a list with an absolute path', listed('/etc/hostname.conf\n'), 'JPEGImages/hostname.jpg does not exist'),
    ('a list with a name of 300 letters', listed('a'*300 + '\n'), 'aaa.jpg')):
    refused('list', name, do, *says)
for name, text, *says in (('a list that names an image that is not there, in training', '2007_999999', '2007_999999'),
                          ('a list with a zero byte in a name, in training', '2007_\0000001', 'list.txt')):
    refused('list', name, lambda at, text=text: train_on(at, 'pascal', voc(), f'train_list={write(at/"list.txt", text)}'), *says)


def lists_alike(content):
    def do(at):
        root = copied(voc(), at/'voc')
        images = open_data('pascal', root, train_list=str(write(at/'list.txt', content)), min_area=50).train.images
        assert [item.name for item in images.items] == NAMES and all(item.image.parent == root/'JPEGImages' for item in images.items)
    return do


for name, content in (
    ('a list that begins with a byte order mark', b'\xef\xbb\xbf' + '\n'.join(NAMES).encode()),
    ('a list with line ends of Windows', '\r\n'.join(NAMES).encode() + b'\r\n'),
    ('a list with line ends of old Macs', '\r'.join(NAMES).encode()),
    ('a list with blank lines, blanks and comments', ('# mine\n\n' + '\n\n'.join(f'  {n}\t ' for n in NAMES)).encode()),
    ('a list of pairs of paths, as PFENet has', '\n'.join(f'JPEGImages/{n}.jpg SegmentationClassAug/{n}.png' for n in NAMES).encode()),
    ('a list of paths that climb out of the root', '\n'.join(f'../../elsewhere/{n}.jpg' for n in NAMES).encode())):
    works('list', name, 'the same images, and none outside of the root', lists_alike(content))


def classes(content): return lambda at: check('folder', changed_folder(at, lambda d: write(d/'classes.txt', content)))
for name, do, *says in (
    ('names of classes, one of them twice', classes('one\ntwo\none\nfour\n'), 'classes.txt lists one twice'),
    ('names of classes without any', classes(''), 'classes.txt names nothing', 'a name on each line'),
    ('names of classes numbered from 0', classes('0 none\n1 one\n2 two\n3 three\n'), 'classes.txt must number its classes 1, 2, 3'),
    ('names of classes with a number left out', classes('1 one\n2 two\n4 four\n'), 'classes.txt must number its classes 1, 2, 3'),
    ('two classes with the same number', classes('1 one\n1 two\n'), 'classes.txt must number its classes 1, 2, 3'),
    ('names of classes in Latin-1', classes('Käse\nBär\nÖl\nFuß\n'.encode('latin-1')), 'classes.txt is not text in UTF-8'),
    ('300 names of classes', classes('\n'.join(f'class{i}' for i in range(300))), 'classes.txt names 300 classes', 'from 1 to 254'),
    ('300 names of classes with numbers', classes('\n'.join(f'{i} class{i}' for i in range(1, 301))), 'classes.txt', '300', 'from 1 to 254'),
    ('a folder called classes.txt', lambda at: check('folder', changed_folder(at, lambda d: becomes(d/'classes.txt', Path.mkdir))),
     'classes.txt cannot be read', 'Is a directory'),
    ('a held-out class that does not exist', lambda at: train_on(at, 'folder', folder(), held(at, 'five')), "no class 'five'", 'it has one, two, three, four'),
    ('a list of held-out classes that is not there', lambda at: train_on(at, 'folder', folder(), 'test_classes=gone.txt'), 'gone.txt cannot be read'),
    ('a list of held-out classes that is empty', lambda at: train_on(at, 'folder', folder(), held(at, '')), 'held.txt'),
    ('all classes held out', lambda at: train_on(at, 'folder', folder(), held(at, 'one\ntwo\nthree\nfour')), 'hold other classes out')):
    refused('classes', name, do, *says)


def named(content):
    def do(at): assert folder_set(changed_folder(at, lambda d: write(d/'classes.txt', content))).classes == ('one', 'two', 'three', 'four')
    return do
works('classes', 'names of classes from Windows, with a byte order mark', 'the same classes', named('\ufeff1 one\r\n2 two\r\n3 three\r\n4 four\r\n'))


def tabbed(at):
    root = changed_folder(at, lambda d: write(d/'classes.txt', ''.join(f'{i} the\tclass{i}\n' for i in range(1, 5))))
    evaluate_on(at, 'folder', root, more=('--write_list', at/'list.tsv'))
    evaluate_on(at, 'folder', root, more=('--list', at/'list.tsv'))
works('classes', 'names of classes with a tab in them', 'a list of episodes that was written can be read', tabbed)


# ---- lists of episodes

def episodes(change, *more):
    "Evaluate with a changed list of episodes"
    def do(at):
        evaluate(at, '--write_list', at/'list.tsv')
        content = change((at/'list.tsv').read_text())
        evaluate(at, '--list', write(at/'list.tsv', content), *more)
    return do


def second(change): return lambda text: '\n'.join(line if i != 1 else '\t'.join(change(line.split('\t'))) for i, line in enumerate(text.splitlines())) + '\n'
for name, do, *says in (
    ('a list that is not there', lambda at: evaluate(at, '--list', at/'gone.tsv'), 'gone.tsv cannot be read', 'No such file'),
    ('an empty list', episodes(lambda t: ''), 'list.tsv', '# deepgp_fss episodes 1'),
    ('a list without its first line', episodes(lambda t: t.partition('\n')[2]), 'list.tsv does not begin with', '# deepgp_fss episodes 1'),
    ('a list of no episodes', episodes(lambda t: t.partition('\n')[0] + '\n'), 'list.tsv'),
    ('a list in UTF-16', episodes(lambda t: t.encode('utf-16')), 'list.tsv cannot be read'),
    ('an image that is not in the data set', episodes(second(lambda w: [w[0], 'val/9999', *w[2:]])), 'list.tsv, line 2', "'val/9999' is not in"),
    ('a path that climbs out of the data set', episodes(second(lambda w: [w[0], '../../../etc/passwd', *w[2:]])), 'list.tsv, line 2',
     "'../../../etc/passwd' is not in"),
    ('a class that does not exist', episodes(second(lambda w: ['granite', *w[1:]])), 'list.tsv, line 2', "'granite' is not in"),
    ('a class that is not held out', episodes(second(lambda w: ['turquoise', *w[1:]])), 'list.tsv, line 2', 'turquoise'),
    ('an episode without support', episodes(second(lambda w: w[:2])), 'list.tsv, line 2', 'no support image'),
    ('episodes of different numbers of shots', episodes(second(lambda w: [*w, w[-1]])), 'list.tsv', 'differ in their number of shots'),
    ('an episode whose query is its support', episodes(second(lambda w: [*w[:2], w[1]])), 'list.tsv, line 2', 'query'),
    ('a list of 1 shot for 3 shots', episodes(lambda t: t, '--shots', 3), 'list.tsv has episodes of 1 shot(s), not 3')):
    refused('episodes', name, do, *says)
works('episodes', 'a list from Windows, with a byte order mark', 'the episodes are evaluated',
      episodes(lambda t: ('\ufeff' + t.replace('\n', '\r\n')).encode()))


# ---- roots of data sets

def root(name, change, source, do=check): return lambda at: do(name, changed_folder(at, change, source()))
def unreadable(name, source, inner='.'):
    def do(at):
        data = copied(source(), at/'data')
        (at/'cache').mkdir(); (at/'cache').chmod(0o777)
        with without_rights(data/inner): check(name, data)
    return do


def emptied(d): [shutil.rmtree(p) if p.is_dir() else p.unlink() for p in d.iterdir()]
def sbd(at, content, name='2008_000001.mat'):
    write(at/f'sbd/cls/{name}', content)
    run('deepgp_data', 'build', 'pascal', copied(voc(), at/'data'), '--sbd', at/'sbd', '--workers', 1)


def mat(labels):
    buffer = io.BytesIO()
    savemat(buffer, dict(GTcls=dict(Segmentation=labels)))
    return buffer.getvalue()


class_maps = 'SegmentationClassAug'
for name, do, *says in (
    ('PASCAL in a folder that is not there', lambda at: check('pascal', at/'gone'), 'gone is not a folder', 'give the folder that holds PASCAL'),
    ('PASCAL in a file', lambda at: check('pascal', write(at/'voc.tar', b'')), 'voc.tar is not a folder', 'give the folder that holds PASCAL'),
    ('PASCAL in an empty folder', root('pascal', emptied, voc), 'does not look like PASCAL', 'JPEGImages should be in it'),
    ('PASCAL behind a link to itself', lambda at: ((at/'loop').symlink_to('loop'), check('pascal', at/'loop')), 'loop is not a folder', 'give the folder'),
    ('PASCAL half unpacked: no label maps', root('pascal', lambda d: shutil.rmtree(d/class_maps), voc), f'{class_maps} is missing', 'deepgp_data build pascal'),
    ('PASCAL half unpacked: an empty folder of label maps', root('pascal', lambda d: emptied(d/class_maps), voc), '.png does not exist', '(s) wrong'),
    ('PASCAL half unpacked: no lists', root('pascal', lambda d: [(d/f'{s}.txt').unlink() for s in ('train', 'val')], voc), 'which images are for train'),
    ('PASCAL half unpacked: a photograph is missing', root('pascal', lambda d: (d/f'JPEGImages/{NAMES[1]}.jpg').unlink(), voc),
     f'{NAMES[1]}.jpg does not exist'),
    ('PASCAL half unpacked: a list of VOC is missing', root('pascal', lambda d: write(d/'ImageSets/Segmentation/val.txt', ''), voc),
     'train.txt cannot be read'),
    ('PASCAL that may not be read', unreadable('pascal', voc), 'data', 'Permission denied'),
    ('PASCAL whose photographs may not be read', unreadable('pascal', voc, f'JPEGImages/{NAMES[0]}.jpg'), NAMES[0], 'Permission denied'),
    ('COCO in a folder that is not there', lambda at: check('coco', at/'gone'), 'gone is not a folder', 'give the folder that holds COCO'),
    ('COCO without its annotations', root('coco', lambda d: shutil.rmtree(d/'annotations'), built_coco), 'does not look like COCO',
     'annotations should be in it'),
    ('COCO whose label maps have not been made', lambda at: check('coco', coco()), 'deepgp_data build coco'),
    ('COCO whose label maps have been made in part', root('coco', lambda d: (d/'deepgp_masks/full/train2014/list.txt').unlink(), built_coco),
     'or only in part', 'deepgp_data build coco'),
    ('COCO half unpacked: a photograph is missing', root('coco', lambda d: (d/'train2014/COCO_train2014_000000000009.jpg').unlink(), built_coco),
     '000000000009.jpg does not exist'),
    ('COCO with a label map missing', root('coco', lambda d: (d/'deepgp_masks/full/train2014/COCO_train2014_000000000009.png').unlink(), built_coco),
     '000000000009.png does not exist'),
    ('a folder that is not there', lambda at: check('folder', at/'gone'), 'gone is not a folder'),
    ('an empty folder', root('folder', emptied, folder), 'data holds neither', 'classes.txt'),
    ('a folder with photographs, but no label maps', root('folder', lambda d: shutil.rmtree(d/'masks'), folder), 'has classes.txt, but not both',
     'masks or labels'),
    ('a folder with an empty folder of photographs', root('folder', lambda d: emptied(d/'images'), folder), 'has no images'),
    ('a folder in which a label map is missing', root('folder', lambda d: (d/'masks/03.png').unlink(), folder), '1 photograph(s)', '03.jpg: it should be'),
    ('a folder whose label map is a link to itself', root('folder', lambda d: becomes(d/'masks/03.png', lambda p: p.symlink_to(p.name)), folder),
     '1 photograph(s)', '03.jpg: it should be'),
    ('a folder whose photograph is a link to itself', root('folder', lambda d: becomes(d/'images/03.jpg', lambda p: p.symlink_to(p.name)), folder), '03.jpg',
     'symbolic links'),
    ('a folder that may not be read', unreadable('folder', folder, 'images'), 'images', 'Permission denied'),
    ('classes in folders, one mask missing', root('folder', lambda d: (d/'class3/3.png').unlink(), class_folders), '3.jpg: 3.png should lie beside it'),
    ('classes in folders, all of them empty', root('folder', lambda d: [emptied(p) for p in d.iterdir()], class_folders), 'data holds neither',
     'folders with photographs and masks'),
    ('SBD in a folder that is not there', lambda at: run('deepgp_data', 'build', 'pascal', voc(), '--sbd', at/'gone'), 'gone is not a folder',
     'give the folder that holds SBD'),
    ('SBD in an empty folder', lambda at: run('deepgp_data', 'build', 'pascal', voc(), '--sbd', at), 'does not look like SBD', 'cls should be in it'),
    ('SBD without any file, and no label maps of VOC', lambda at: ((at/'sbd/cls').mkdir(parents=True),
        run('deepgp_data', 'build', 'pascal', copied(voc(), at/'data'), '--sbd', at/'sbd')), 'holds any label map'),
    ('a file of SBD cut off in the middle', lambda at: sbd(at, mat(DRAWN)[:200]), '2008_000001.mat is not a label map of SBD'),
    ('an empty file of SBD', lambda at: sbd(at, b''), '2008_000001.mat is not a label map of SBD'),
    ('a file of SBD with label 21', lambda at: sbd(at, mat(DRAWN*0 + 21)), '2008_000001.mat does not hold labels from 0 to 20'),
    ('a file of SBD with half a label', lambda at: sbd(at, mat(DRAWN*.3)), '2008_000001.mat does not hold labels from 0 to 20'),
    ('a file of SBD without any pixel', lambda at: sbd(at, mat(np.zeros((0, 0), np.uint8))), '2008_000001.mat'),
    ('a pickle named as a file of SBD', lambda at: harmless(at, lambda: sbd(at, pickle.dumps(Evil(at/'executed')))), '2008_000001.mat is not a label map of SBD')):
    refused('root', name, do, *says)


def indexed(content):
    "A damaged index is made again"
    def do(at):
        data = copied(folder(), at/'data')
        areas = folder_set(data).areas
        index = data/'deepgp_index/index.txt'
        write(index, content(index.read_text()))
        assert folder_set(data).areas == areas
    return do


for name, content in (
    ('an empty index', lambda t: ''), ('an index cut off in the middle', lambda t: t[:len(t)//2]), ('an index that is no text', lambda t: JPEG),
    ('an index of other images', lambda t: t.replace('03\t', '33\t')), ('an index without numbers', lambda t: t.replace(':', ':x')),
    ('an index of another version', lambda t: t.replace('index 2', 'index 1'))):
    works('root', name, 'it is made again', indexed(content))


def looped(at):
    data = copied(folder(), at/'data')
    (data/'images/up').symlink_to('..'), (data/'images/loop').symlink_to('loop')
    assert len(folder_set(data)) == 12
works('root', 'links that go round in circles, beside the photographs', 'they are passed over', looped)


# ---- annotations of COCO

def annotations(change):
    "Make the label maps of COCO from a changed file: `change` changes the data, or returns the text"
    def do(at):
        data = copied(coco(), at/'data')
        path = data/f'annotations/{JSON}'
        values = json.loads(path.read_text())
        text = change(values)
        write(path, text if isinstance(text, (str, bytes)) else json.dumps(values))
        try: run('deepgp_data', 'build', 'coco', data, '--workers', 1)
        except Refused: assert not (data/'deepgp_masks/full/train2014/list.txt').exists(), 'a list that looks complete'; raise
    return do


def first(kind, **values): return annotations(lambda d: d[kind][0].update(values))
def lacks(kind, key): return annotations(lambda d: (d[kind][0].pop(key), None)[1])
def shaped(shape): return first('annotations', segmentation=shape)
def annotations_folder(at): run('deepgp_data', 'build', 'coco', changed_folder(at, lambda d: becomes(d/f'annotations/{JSON}', Path.mkdir), coco()))
def bomb(at):
    with little_memory(): first('images', height=10**6, width=10**6)(at)


def far(*polygon):
    "A polygon whose coordinates must never reach pycocotools, which would fill all memory with its edges"
    def guarded(shapes, *size):
        if isinstance(shapes, list) and not np.abs(np.array(shapes[0], float)).max() < 1e6: raise Began('pycocotools began to draw it')
        return draw(shapes, *size)
    draw = prepare.coco_mask.frPyObjects
    def do(at):
        with patch.object(prepare.coco_mask, 'frPyObjects', guarded): shaped([polygon])(at)
    return do


JSON, DRAW = 'instances_train2014.json', 'annotation 1 has a shape'
for name, do, *says in (
    ('files that are not there', lambda at: run('deepgp_data', 'build', 'coco', changed_folder(at, lambda d: emptied(d/'annotations'), coco())),
     f'{JSON} is missing', '2014 Train/Val annotations'),
    ('photographs that are not there', lambda at: run('deepgp_data', 'build', 'coco', changed_folder(at, lambda d: emptied(d/'train2014'), coco())),
     'train2014 holds none of the 3 photographs', 'unpack them there'),
    ('an empty file', annotations(lambda d: ''), f'{JSON} is damaged', 'download or unpack it again'),
    ('a file cut off in the middle', annotations(lambda d: json.dumps(d)[:2000]), f'{JSON} is damaged', 'download'),
    ('a file that is still packed', annotations(lambda d: b'PK\3\4\x80\xff'), f'{JSON} is damaged', 'unpack it again'),
    ('a folder in its place', annotations_folder, JSON),
    ('100,000 brackets', annotations(lambda d: '['*100_000), f'{JSON} is damaged'),
    ('a number of 5,000 digits', annotations(lambda d: '[' + '9'*5000 + ']'), f'{JSON} is damaged'),
    ('a list instead of a dictionary', annotations(lambda d: '[]'), f'{JSON} is not a file of COCO instances', 'it lacks'),
    *((f'a file without {key}', annotations(lambda d, key=key: (d.pop(key), None)[1]), f'{JSON} is not a file of COCO instances',
       'it lacks') for key in ('images', 'annotations', 'categories')),
    ('a file of captions', annotations(lambda d: [a.pop('segmentation') and a.update(caption='a cat') for a in d['annotations']] and None),
     f"{JSON} has an entry without 'segmentation'"),
    ('a category that is missing', annotations(lambda d: d['categories'].pop() and None), f"{JSON} lacks the category 'toothbrush'"),
    ('images that are null', annotations(lambda d: d.update(images=None)), JSON),
    ('an annotation that is a text', annotations(lambda d: d['annotations'].append('cat')), JSON),
    *((f'an image without {key}', lacks('images', key), f"{JSON} has an entry without '{key}'") for key in ('id', 'file_name', 'height', 'width')),
    *((f'an annotation without {key}', lacks('annotations', key), f"{JSON} has an entry without '{key}'") for key in ('image_id', 'category_id',
        'segmentation')),
    ('a category without a name', lacks('categories', 'name'), f"{JSON} has an entry without 'name'"),
    ('an annotation of an image that is not listed', first('annotations', image_id=99), f'{JSON}: annotation 1 is of image 99'),
    ('an annotation of an unknown category', first('annotations', category_id=9999), JSON, 'image 9', 'category 9999'),
    ('two images with the same id', annotations(lambda d: d['images'].append(d['images'][0] | dict(file_name='other.jpg'))), JSON, 'the id 9'),
    ('two images with the same file name', annotations(lambda d: d['images'][0].update(file_name=d['images'][1]['file_name'])), JSON, '000000000003'),
    ('a polygon of two points', shaped([[1, 2, 3, 4]]), JSON, DRAW), ('a polygon of one number', shaped([[1]]), JSON, DRAW),
    ('a polygon with an odd number of coordinates', shaped([[1, 2, 9, 2, 9, 9, 1]]), JSON, DRAW),
    ('a polygon of texts', shaped([['a', 'b', 'c', 'd', 'e', 'f']]), JSON, DRAW),
    ('a polygon with values that are no numbers', shaped([[float('nan')]*6]), JSON, DRAW),
    ('a polygon that goes to infinity', far(0, 0, float('inf'), 0, 5, 5), JSON, DRAW),
    ('a polygon as large as a country', far(0, 0, 1e9, 0, 1e9, 1e9), JSON, DRAW),
    ('an object without polygons', shaped([]), JSON, DRAW), ('an object without a shape', shaped(None), JSON, DRAW),
    ('a run-length mask of another size', shaped(dict(size=[5, 5], counts=[5, 20])), JSON, DRAW),
    ('a run-length mask that is too short', shaped(dict(size=[40, 60], counts=[0, 200])), JSON, DRAW),
    ('a run-length mask that is too long', shaped(dict(size=[40, 60], counts=[0, 99_999])), JSON, DRAW),
    ('a run-length mask with a negative run', shaped(dict(size=[40, 60], counts=[-200, 2600])), JSON, DRAW),
    ('a packed run-length mask of garbage', shaped(dict(size=[40, 60], counts='garbage')), JSON, DRAW),
    ('a run-length mask without its counts', shaped(dict(size=[40, 60])), JSON, DRAW),
    ('an image of no height', first('images', height=0), JSON, 'image 9'), ('an image of negative width', first('images', width=-60), JSON, 'image 9'),
    ('a height that is a text', first('images', height='40'), JSON, 'image 9'),
    ('a height of forty and a half', first('images', height=40.5), JSON, 'image 9'), ('an image of a million by a million pixels', bomb, JSON, 'image 9'),
    ('a file name that is a number', first('images', file_name=9), JSON, 'image 9')):
    refused('COCO', name, do, *says)


def built_from(change, *says):
    "What is there of COCO is built, and what is not is named"
    def do(at):
        said = run('deepgp_data', 'build', 'coco', changed_folder(at, change, coco()))
        assert all(s in said for s in says), said
    return do


works('COCO', 'one split of two', 'it is built, and the other one is named', built_from(lambda d: (d/f'annotations/{JSON}').unlink(),
      'val2014: 3 label maps', f'{JSON} is missing'))
works('COCO', 'a photograph that is missing', 'it is left out and counted', built_from(lambda d: (d/'train2014/COCO_train2014_000000000009.jpg').unlink(),
      'train2014: 2 label maps', '1 photograph(s) were missing', '000000000009.jpg'))
works('COCO', 'the layout of 2017', 'it is built, and called 2017', lambda at: (make_coco(at/'data', 'val', 2017), run('deepgp_data', 'build', 'coco', at/'data'),
      open_data('coco', at/'data').title.index('COCO 2017')))


def drawn_as(change, label=17):
    "The label map of the first image is made, and has the label of its dog"
    def do(at):
        annotations(change)(at)
        found, = (at/'data/deepgp_masks/full/train2014').glob('*009.png')
        assert label in np.array(Image.open(found)) and not (at/'009.png').exists()
    return do


works('COCO', 'a file that begins with a byte order mark', 'as without it', drawn_as(lambda d: '\ufeff' + json.dumps(d)))
works('COCO', 'a file name that climbs out of the root', 'the label map stays where it belongs',
      drawn_as(lambda d: d['images'][0].update(file_name='../../../COCO_train2014_000000000009.jpg')))
works('COCO', 'an annotation that does not say whether it is a crowd', 'it is an object', drawn_as(lambda d: d['annotations'][0].pop('iscrowd') and None))
works('COCO', 'a polygon that leaves its image', 'it is cut at the edge', drawn_as(lambda d: d['annotations'][0].update(segmentation=[square(-20, -20, 30)])))
works('COCO', 'a run-length mask for an object that is no crowd', 'it is drawn',
      drawn_as(lambda d: d['annotations'][0].update(segmentation=dict(size=[40, 60], counts=[0, 200, 2200]))))


# ---- checkpoints

def use(at, path): return segment(at, write(at/'a.jpg', JPEG), by=path)
def raw(content): return lambda at: use(at, write(at/'my.safetensors', content(at) if callable(content) else content))
def whole(): return model().read_bytes()
def header():
    with safe_open(model(), 'pt') as f: return json.loads(f.metadata()['deepgp_fss'])


def save_by_hand(tensors, path, metadata):
    "What safetensors would write, also for numbers that older versions of it do not know"
    kinds = {torch.float32: 'F32', torch.float64: 'F64', torch.float16: 'F16', torch.int64: 'I64', torch.complex64: 'C64'}
    header, data = dict(__metadata__=metadata), b''
    for name, t in tensors.items():
        more = t.contiguous().numpy().tobytes()
        header[name] = dict(dtype=kinds[t.dtype], shape=list(t.shape), data_offsets=[len(data), len(data) + len(more)])
        data += more
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack('<Q', len(text)) + text + data)


def kept(change=lambda h: None, tensors=lambda t: t, ask=use):
    "Segment with a checkpoint whose header or tensors were changed; `change` changes the header, or returns the text in its place"
    def do(at):
        about = header()
        text = change(about)
        save_by_hand(tensors(load_file(model())), at/'my.safetensors', metadata=dict(deepgp_fss=text if isinstance(text, str) else json.dumps(about)))
        return ask(at, at/'my.safetensors')
    return do


def config(**values): return kept(lambda h: h['config'].update(values))
def judged(at, path): return run('deepgp_eval', path, *EVALUATE, '--out', at/'out')
def one(change):
    "Change one tensor, the weight of the projection"
    def do(tensors): name = next(k for k in tensors if k.endswith('project.weight')); tensors[name] = change(tensors[name]); return tensors
    return do


def sized(at, **values):
    with little_memory(): config(**values)(at)


MINE = 'my.safetensors'
for name, do, *says in (
    ('a checkpoint that is not there', lambda at: use(at, at/'gone.safetensors'), 'gone.safetensors', 'give a checkpoint'),
    ('a folder without a model', lambda at: use(at, at), 'There is no model', 'the folder of a finished run'),
    ('a bundled model that does not exist', lambda at: use(at, 'photographs'), "'photographs'", 'one of the bundled: shapes'),
    ('a link to itself', lambda at: ((at/MINE).symlink_to(MINE), use(at, at/MINE)), MINE, 'give a checkpoint'),
    ('an empty file', raw(b''), MINE, 'damaged'), ('a file cut off in the middle', raw(lambda at: whole()[:len(whole())//2]), MINE, 'damaged'),
    ('a file cut off in its header', raw(lambda at: whole()[:100]), MINE, 'damaged'),
    ('a text', raw(b'{"weights": []}'), MINE, 'damaged'), ('a header of nine million million million bytes', raw(struct.pack('<Q', 2**63) + b'{}'), MINE,
                                                           'damaged'),
    ('a header that is no JSON', raw(struct.pack('<Q', 8) + b'no JSON!'), MINE, 'damaged'),
    ('tensors that lie outside of the file', raw(lambda at: blocks([0, 10**9])), MINE, 'damaged'),
    ('tensors with a negative shape', raw(lambda at: blocks([0, 4], shape=[-1])), MINE, 'damaged'),
    ('tensors that lie on top of each other', raw(lambda at: blocks([0, 4], [0, 4])), MINE, 'damaged'),
    ('a pickle in disguise', lambda at: harmless(at, lambda: raw(lambda at: pickle.dumps(Evil(at/'executed')))(at)), MINE, 'damaged'),
    ('a file of torch.save in disguise', lambda at: harmless(at, lambda: (torch.save(Evil(at/'executed'), at/MINE), use(at, at/MINE))), MINE, 'damaged'),
    ('weights of a backbone', lambda at: use(at, backbone()), 'resnet18.safetensors', 'no checkpoint of deepgp_fss', 'use weights='),
    ('a saved segmenter', lambda at: use(at, fitted().save(at/MINE)), MINE, 'no checkpoint'),
    ('a header of ours that is no JSON', kept(lambda h: '{"format": '), MINE, 'no checkpoint of deepgp_fss'),
    ('a header of ours that is a list', kept(lambda h: '[]'), MINE),
    ('a format of the future', kept(lambda h: h.update(format='deepgp_fss 9')), MINE, "'deepgp_fss 9'", 'update deepgp_fss'),
    ('a header without a configuration', kept(lambda h: (h.pop('config'), None)[1]), MINE),
    ('a header without information', kept(lambda h: (h.pop('info'), None)[1]), MINE), ('information that is a list', kept(lambda h: h.update(info=[])), MINE),
    ('a run that is a text', kept(lambda h: h['info'].update(run='mine')), MINE),
    ('a window of minus 64 pixels', kept(lambda h: h['info']['run']['recipe'].update(size=-64)), 'size must be at least 32'),
    ('a window that is a text', kept(lambda h: h['info']['run']['recipe'].update(size='large')), MINE),
    ('a configuration that is a list', kept(lambda h: h.update(config=['small'])), MINE), ('an unknown setting', config(colour='red'), MINE, 'colour'),
    ('a backbone that does not exist', config(backbone='vgg16'), "'vgg16'", 'choose one of'), ('a backbone that is a number', config(backbone=50), MINE),
    ("somebody's own encoder", config(backbone='custom'), MINE),
    ('another model: a ResNet in the configuration', config(backbone='resnet18', scales=[16]), MINE, 'does not fit DeepGPNet', 'missing'),
    ('other widths in the configuration', config(dim=32), MINE, 'does not fit DeepGPNet', 'of another shape'),
    ('another learner in the configuration', config(learner='prototype', mask_encoder='pool'), MINE, 'does not fit DeepGPNet', 'unknown'),
    ('a learner that does not exist', config(learner='oracle'), "'oracle'", 'choose one of'),
    ('a kernel that does not exist', config(kernel='cubic'), "'cubic'", 'choose one of'), ('no features', config(dim=0), MINE),
    ('minus 16 features', config(dim=-16), MINE), ('a number of features that is a text', config(dim='16'), MINE),
    ('a decoder of minus 16 channels', config(decoder_width=-16), MINE), ('an encoding of minus 8 numbers', config(encoding_dim=-8), MINE),
    ('a million million features', lambda at: sized(at, dim=10**12), MINE),
    ('no scales', config(scales=[]), MINE), ('a scale of 7', config(scales=[7]), 'stride must be 8 or 16'),
    ('scales that are a number', config(scales=8), MINE), ('an even window of covariances', config(window=4), MINE, 'of another shape'),
    ('a window of covariances of minus 5', config(window=-5), MINE, 'window must be a whole number from 1'),
    ('negative noise', config(noise_var=-1.), 'noise_var must be'), ('noise that is no number', config(noise_var=float('nan')), 'noise_var must be'),
    ('a length scale of 0', config(length_sq=0.), 'length_sq must be'), ('a thinning of 0', config(support_stride=0), 'support_stride'),
    ('at most minus 3 points', config(max_points=-3), 'max_points'),
    ('a tensor of another shape', kept(tensors=one(lambda t: t[:, :5].contiguous())), MINE, 'does not fit DeepGPNet', 'of another shape'),
    ('a tensor too many', kept(tensors=lambda t: t | dict(more=torch.ones(3))), MINE, 'unknown: more'),
    ('a tensor too few', kept(tensors=lambda t: dict(list(t.items())[1:])), MINE, 'missing'),
    ('no tensors at all', kept(tensors=lambda t: {}), MINE),
    ('weights that are no numbers', kept(tensors=one(lambda t: t*float('nan'))), MINE),
    ('weights that are infinite', kept(tensors=one(lambda t: t*float('inf'))), MINE), ('weights that are complex', kept(tensors=one(lambda t: t*1j)), MINE),
    ('a checkpoint that is not there, to evaluate', lambda at: judged(at, at/'gone'), 'no trained model', 'a run writes it when it has finished'),
    ('a run that has not finished, to evaluate', lambda at: judged(at, write(at/'run/config.json', '{}').parent), 'no trained model',
     'a run writes it when it has finished'),
    ('an empty file, to evaluate', lambda at: judged(at, write(at/MINE, b'')), MINE, 'damaged'),
    ('a checkpoint of a data set that does not exist, to evaluate',
     kept(lambda h: h['info']['run'].update(data=dict(name='imagenet')), ask=lambda at, p: run('deepgp_eval', p, '--cpu', '--out', at/'out')), "'imagenet'",
     'choose one of'),
    ('a checkpoint whose data set has unknown options, to evaluate',
     kept(lambda h: h['info']['run'].update(data=dict(name='shapes', colour=3)), ask=lambda at, p: run('deepgp_eval', p, '--cpu', '--out', at/'out')),
     'shapes', 'colour')):
    refused('checkpoint', name, do, *says)


def blocks(*places, shape=(1,)):
    "A safetensors file whose tensors have these places"
    about = json.dumps({f'x{i}': dict(dtype='F32', shape=list(shape), data_offsets=p) for i, p in enumerate(places)}).encode()
    return struct.pack('<Q', len(about)) + about + bytes(4)


def secret_checkpoint(at):
    path = write(at/MINE, whole())
    (at/'out').mkdir(); (at/'out').chmod(0o777); support(), write(at/'a.jpg', JPEG)
    with without_rights(path): segment(at, at/'a.jpg', by=path)
refused('checkpoint', 'a checkpoint that may not be read', secret_checkpoint, MINE, 'ermission denied')


def halved(at):
    save_checkpoint(at/'half.safetensors', load_checkpoint(model()), half=True, run=dict(recipe=dict(size=64)))
    use(at, at/'half.safetensors')
works('checkpoint', 'a checkpoint in half precision', 'it segments', halved)


def saved(change=lambda h: None, tensors=lambda t: t):
    "Load a saved segmenter whose header or tensors were changed"
    def do(at):
        path = fitted().save(at/MINE)
        with safe_open(path, 'pt') as f: about = json.loads(f.metadata()['deepgp_fss_segmenter'])
        text = change(about)
        save_file(tensors(load_file(path)), path, metadata=dict(deepgp_fss_segmenter=text if isinstance(text, str) else json.dumps(about)))
        return FewShotSegmenter.load(path, 'cpu').predict(scene()[0])
    return do


for name, do, *says in (
    ('a file that is not there', lambda at: FewShotSegmenter.load(at/'gone.safetensors'), 'gone.safetensors'),
    ('a file cut off in the middle', lambda at: FewShotSegmenter.load(write(at/MINE, fitted().save(at/'a.safetensors').read_bytes()[:-99])), MINE, 'damaged'),
    ('a trained model', lambda at: FewShotSegmenter.load(model()), 'model.safetensors', 'opened with from_pretrained'),
    ('a pickle in disguise', lambda at: harmless(at, lambda: FewShotSegmenter.load(write(at/MINE, pickle.dumps(Evil(at/'executed'))))), MINE, 'damaged'),
    ('a format of the future', saved(lambda h: h.update(format='deepgp_fss segmenter 9')), MINE, 'segmenter 9'),
    ('a header without a configuration', saved(lambda h: (h.pop('config'), None)[1]), MINE), ('a header that is a list', saved(lambda h: '[]'), MINE),
    ('a window of minus 64 pixels', saved(lambda h: h.update(size=-64)), 'size must be at least 32'),
    ('another model', saved(lambda h: h['config'].update(dim=32)), MINE, 'does not fit'),
    ('an unknown learner without training', saved(lambda h: h.update(training_free=dict(learner='oracle'))), "'oracle'"),
    ('images without their masks', saved(tensors=lambda t: {k: v for k, v in t.items() if k != 'masks'}), MINE),
    ('masks of another size than the images', saved(tensors=lambda t: t | dict(masks=t['masks'][:, :9].contiguous())), MINE, 'masks'),
    ('more images than masks', saved(tensors=lambda t: t | dict(masks=t['masks'][:1].contiguous())), MINE, 'masks'),
    ('masks without an object', saved(tensors=lambda t: t | dict(masks=t['masks']*0)), MINE)):
    refused('segmenter', name, do, *says)


# ---- weights of a backbone

def free(at, weights, backbone='resnet18', *more):
    return run('deepgp_segment', '--support', support(), '--query', write(at/'a.jpg', JPEG), '--out', at/'out', '--weights', weights, '--backbone', backbone,
               '--size', 64, '--cpu', *more)
def torch_file(at, value): torch.save(value, at/'w.pth'); return at/'w.pth'
def altered(at, change): save_file(change(load_file(backbone())), at/'w.safetensors'); return at/'w.safetensors'
def imagenet(at, content=None):
    if content is not None: write(at/'torch/hub/checkpoints/resnet18-f37072fd.pth', content)
    return free(at, 'imagenet')


def no_network(at):
    with patch('torch.hub.download_url_to_file', side_effect=OSError('Network is unreachable')): free(at, 'imagenet', 'resnet18', '--download')


def without_timm(at):
    with patch.dict(sys.modules, timm=None): free(at, backbone(), 'timm:resnet18')


for name, do, *says in (
    ('a file that is not there', lambda at: free(at, at/'gone.pth'), 'no weights file', 'gone.pth'), ('a folder', lambda at: free(at, at), 'no weights file'),
    ('an empty file', lambda at: free(at, write(at/'w.pth', b'')), 'w.pth cannot be read', 'save the state dict alone'),
    ('a PyTorch file cut off in the middle', lambda at: free(at, write(at/'w.pth', torch_file(at, dict(a=torch.ones(9999))).read_bytes()[:9999])), 'w.pth'),
    ('a pickle that runs a program', lambda at: harmless(at, lambda: free(at, write(at/'w.pth', pickle.dumps(Evil(at/'executed'))))), 'w.pth cannot be read',
     'refused', 'save the state dict alone'),
    ('a PyTorch file that runs a program', lambda at: harmless(at, lambda: free(at, torch_file(at, dict(a=Evil(at/'executed'))))), 'w.pth cannot be read',
     'refused', 'save the state dict alone'),
    ('a whole model in a PyTorch file', lambda at: free(at, torch_file(at, torch.nn.Conv2d(1, 1, 1))), 'w.pth cannot be read', 'save the state dict alone'),
    ('a list in a PyTorch file', lambda at: free(at, torch_file(at, [torch.ones(3)])), 'w.pth does not hold a state dict'),
    ('numbers in a PyTorch file', lambda at: free(at, torch_file(at, {'conv1.weight': 3})), 'w.pth does not hold a state dict'),
    ('names that are numbers', lambda at: free(at, torch_file(at, {3: torch.ones(3)})), 'w.pth'),
    ('a safetensors file cut off in the middle', lambda at: free(at, write(at/'w.safetensors', backbone().read_bytes()[:9999])), 'w.safetensors',
     'is the download complete?'),
    ('a PyTorch file named .safetensors', lambda at: free(at, write(at/'w.safetensors', torch_file(at, dict(a=torch.ones(3))).read_bytes())), 'w.safetensors',
     'is the download complete?'),
    ('weights of something else', lambda at: free(at, torch_file(at, dict(embedding=torch.ones(3)))), 'w.pth does not hold the weights of a ResNet', 'embedding'),
    ('no weights', lambda at: free(at, torch_file(at, {})), 'w.pth does not hold the weights of a ResNet'),
    ('weights of another ResNet', lambda at: free(at, backbone(), 'resnet34'), 'resnet18.safetensors does not fit ResNet', 'missing'),
    ('a tensor of another shape', lambda at: free(at, altered(at, lambda t: t | {'conv1.weight': t['conv1.weight'][:, :1].contiguous()})),
     'w.safetensors does not fit ResNet', 'of another shape'),
    ('weights that are no numbers', lambda at: free(at, altered(at, lambda t: t | {'conv1.weight': t['conv1.weight']*float('nan')})), 'w.safetensors'),
    ('weights that are whole numbers', lambda at: free(at, altered(at, lambda t: t | {'conv1.weight': t['conv1.weight'].long()})), 'w.safetensors cannot be used', 'conv1.weight holds whole numbers'),
    ('variances that are negative', lambda at: free(at, altered(at, lambda t: t | {'bn1.running_var': -t['bn1.running_var']})), 'w.safetensors cannot be used', 'bn1.running_var holds negative variances'),
    ('a home of a user who does not exist', lambda at: free(at, '~nobody_of_this_name/w.pth'), 'no weights file', 'w.pth'),
    ('a backbone of timm, without timm', without_timm, 'needs timm', "pip install 'deepgp_fss[timm]'"),
    ('a backbone that does not exist', lambda at: free(at, backbone(), 'vgg16'), "'vgg16'", 'choose one of'),
    ('a model that timm does not have', lambda at: free(at, backbone(), 'timm:resnext_of_dreams'), "'resnext_of_dreams'", 'timm.list_models'),
    ('weights for the small backbone, which has no use for them', lambda at: free(at, backbone(), 'small'), 'small'),
    ('ImageNet weights that are not in the cache', imagenet, 'not in the cache', '--download'),
    ('ImageNet weights that are damaged in the cache', lambda at: imagenet(at, b'half a download'), 'resnet18-f37072fd.pth is damaged', 'Delete it'),
    ('ImageNet weights without a network', no_network, 'could not be downloaded', 'Network is unreachable', 'Fetch'),
    ('weights for a training whose backbone has no use for them', lambda at: train(at, '--weights', backbone()), 'small', 'no use for the weights')):
    refused('weights', name, do, *says)


works('weights', 'in double precision', 'as in single precision', lambda at: free(at, altered(at, lambda t: {k: v.double() if v.is_floating_point() else v for k, v in t.items()})))
works('weights', 'in half precision', 'as in single precision', lambda at: free(at, altered(at, lambda t: {k: v.half() if v.is_floating_point() else v for k, v in t.items()})))


# ---- surroundings

def no_locks(number):
    def do(at):
        with patch.object(fcntl, 'flock', side_effect=OSError(number, os.strerror(number))): train(at, '--iterations', 1)
    return do


def no_shared_memory(at):
    "What PyTorch says when /dev/shm is full; tests/test_environment.py has a real one"
    lost = RuntimeError('DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader\'s workers are out of shared memory.')
    with patch.object(training, 'episode_loader', side_effect=lost): train(at, '--workers', 1)


def no_memory(error):
    def do(at):
        with patch.object(training, 'forward_backward', side_effect=error): train(at)
    return do


def opened(at):
    "A program that a caller has opened with Pillow"
    FewShotSegmenter.from_pretrained(model()).fit([Image.open(io.BytesIO(PROGRAM))], [np.ones((10, 10), np.uint8)])


PROGRAM = b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n'
works('surroundings', 'a disk that knows no locks', 'trained without a lock, which is said once', no_locks(errno.ENOLCK))
works('surroundings', 'a disk whose driver has no locks', 'trained without a lock, which is said once', no_locks(errno.EOPNOTSUPP))
refused('surroundings', 'a /dev/shm that is too small', no_shared_memory, 'use --workers 0', 'make /dev/shm larger')
refused('surroundings', 'too little memory', no_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")), 'not enough memory', '--batch')
refused('surroundings', 'too little memory for Python', no_memory(MemoryError()), 'not enough memory', '--batch')
refused('surroundings', 'no more threads', no_memory(RuntimeError("can't start new thread")), 'no more threads', '--workers 0')
refused('surroundings', 'a PostScript program, opened by the caller', opened, 'format EPS', 'give one of JPEG')


# ---- runs to resume

def resume(change, *words):
    "Go on with a run in which something was changed"
    def do(at):
        run_folder = copied(trained(), at/'run')
        change(run_folder)
        train(at, '--out', run_folder, '--iterations', 2, '--resume', *words)
    return do


def state(change=lambda h: None, tensors=lambda t: t):
    "Go on from a changed state"
    def edit(d):
        path = d/'state.safetensors'
        with safe_open(path, 'pt') as f: about = json.loads(f.metadata()['deepgp_fss_run'])
        text = change(about)
        save_file(tensors(load_file(path)), path, metadata=dict(deepgp_fss_run=text if isinstance(text, str) else json.dumps(about)))
    return resume(edit)


def file(name, content): return resume(lambda d: write(d/name, content(d/name) if callable(content) else content))
def cut(path): data = path.read_bytes(); return data[:len(data)//2]
STATE = 'state.safetensors'
for name, do, *says in (
    ('an empty state', file(STATE, b''), STATE, 'damaged'), ('a state cut off in the middle', file(STATE, cut), STATE, 'damaged'),
    ('a pickle as state', lambda at: harmless(at, lambda: file(STATE, pickle.dumps(Evil(at/'executed')))(at)), STATE, 'damaged'),
    ('a trained model as state', resume(lambda d: shutil.copy(d/'model.safetensors', d/STATE)), STATE, 'damaged'),
    ('a state whose header is a list', state(lambda h: '[]'), STATE), ('a state without its step', state(lambda h: (h.pop('step'), None)[1]), STATE),
    ('a state without the rest', state(lambda h: (h.pop('rest'), None)[1]), STATE), ('a state of step minus 1', state(lambda h: h.update(step=-1)), STATE),
    ('a state whose step is a text', state(lambda h: h.update(step='two')), STATE),
    ('a state beyond the last step', state(lambda h: h.update(step=99)), STATE),
    ('a state of an optimiser of other groups', state(lambda h: h['rest'].update(groups=[])), STATE),
    ('a state with a tensor of another shape', state(tensors=lambda t: t | {k: v[:1].contiguous() for k, v in t.items() if k.endswith('project.weight')}),
     STATE), ('a state with a tensor too many', state(tensors=lambda t: t | {'model.more': torch.ones(3)}), STATE),
    ('a state with a tensor too few', state(tensors=lambda t: {k: v for k, v in t.items() if not k.endswith('project.weight')}), STATE),
    ('a state of an optimiser with strange names', state(tensors=lambda t: t | {'optimizer.x.y': torch.ones(3)}), STATE),
    ('a state without its configuration', resume(lambda d: (d/'config.json').unlink()), 'no config.json', 'choose another --out'),
    ('a configuration cut off in the middle', file('config.json', cut), 'config.json'),
    ('a configuration that is empty', file('config.json', '{}'), 'config.json'), ('a configuration that is a list', file('config.json', '[]'), 'config.json'),
    ('a configuration that is no text', file('config.json', b'\xff\xfe'), 'config.json'),
    ('a log that is no text', file('log.csv', b'\xff\xfe\0'), 'log.csv'),
    ('a run of other settings', resume(lambda d: None, '--lr', .5), 'recipe.lr is 0.001 in the run and 0.5 now'),
    ('a run that is there already', lambda at: train(at, '--out', copied(trained(), at/'run'), '--iterations', 2), 'already holds a run', '--resume')):
    refused('run', name, do, *says)


def locked(at):
    (at/'out').mkdir()
    with open(at/'out/.lock', 'w') as f: fcntl.flock(f, fcntl.LOCK_EX); train(at)
refused('run', 'a run that another process is writing', locked, 'Another run is writing', 'choose another --out')


def resumes(at, change):
    run_folder = copied(trained(), at/'run')
    change(run_folder)
    train(at, '--out', run_folder, '--iterations', 2, '--resume')
    a, b = (load_file(d/'model.safetensors') for d in (run_folder, trained()))
    assert all(torch.equal(a[k], b[k]) for k in a.keys() | b.keys())
works('run', 'a log cut off in the middle', 'the run goes on from its checkpoint, to the same weights',
      lambda at: resumes(at, lambda d: write(d/'log.csv', cut(d/'log.csv'))))
works('run', 'a half-written state of a process that was killed', 'the run goes on from the whole one',
      lambda at: resumes(at, lambda d: write(d/'.state.safetensors.123.part', b'half')))


def saved_twice(at, damage):
    train(at, '--out', at/'run', '--iterations', 2, '--checkpoint_every', 1)
    whole = load_file(at/'run/model.safetensors')
    write(at/'run'/STATE, damage(at/'run'/STATE))
    train(at, '--out', at/'run', '--iterations', 2, '--checkpoint_every', 1, '--resume')
    again = load_file(at/'run/model.safetensors')
    assert all(torch.equal(whole[k], again[k]) for k in whole.keys() | again.keys())
for name, damage in (('an empty state', lambda path: b''), ('a state cut off in the middle', cut), ('a state of zeros', lambda path: bytes(path.stat().st_size))):
    works('run', f'{name}, with the one before it', 'the run goes on from the one before it, to the same weights, and says so', partial(saved_twice, damage=damage))


# ---- results of evaluations, kept features

def again(change, *more):
    "Evaluate once more into a folder in which something was changed"
    def do(at):
        evaluate(at, '--out', at/'results')
        change(next((at/'results').iterdir()))
        evaluate(at, '--out', at/'results', *more)
    return do


def rows(change): return again(lambda d: write(d/'episodes.jsonl', change((d/'episodes.jsonl').read_text())))
for name, do, *says in (
    ('results of another model', again(lambda d: write(d/'episodes.jsonl', '{"format": "deepgp_fss evaluation 1"}\n')),
     'episodes.jsonl is from an evaluation of something else', 'choose another --out'),
    ('results with a damaged line in the middle', rows(lambda t: '\n'.join((t.splitlines()[0], '{"index": 0, "lab', t.splitlines()[2])) + '\n'),
     'episodes.jsonl'),
    ('results with a line without its number', rows(lambda t: t.replace('"index": 0, ', '')), 'episodes.jsonl'),
    ('results that are no text', again(lambda d: write(d/'episodes.jsonl', b'\xff\xfe')), 'episodes.jsonl'),
    ('results of other data', again(lambda d: None, '--data', 'n_val=60', 'side=48', 'seed=7'), 'is from an evaluation of something else', 'seed 7', 'choose another --out'),
    ('results of another window', again(lambda d: None, '--size', '64'), 'size is 48 there and 64 now', 'choose another --out'),
    ('results of other images under the same names', rows(lambda t: t.replace('"mark": "', '"mark": "0')), 'episode 0 was made from other files', 'choose another --out'),
    ('results without the images they are of', rows(lambda t: t.replace('"mark": ', '"marks": ')), 'episodes.jsonl', 'it is damaged; remove it'),
    ('results of a class that is not evaluated', rows(lambda t: t.replace('"label": ', '"label": 9')), 'episodes.jsonl')):
    refused('results', name, do, *says)


def halfway(at):
    evaluate(at, '--out', at/'results')
    folder, = (at/'results').iterdir()
    before = (folder/'episodes.jsonl').read_text()
    write(folder/'part_1_0.jsonl', before[:-30]), (folder/'episodes.jsonl').unlink()
    evaluate(at, '--out', at/'results')
    assert (folder/'episodes.jsonl').read_text() == before
works('results', 'a last line that is half written', 'it is evaluated again', halfway)


@cache
def features():
    with inside(shared()): evaluate(shared(), '--out', shared()/'cached', '--cache', '--cache_dir', shared()/'features')
    return shared()/'features'


def features_with(change):
    "Evaluate with kept features in which something was changed"
    def do(at):
        folder = copied(features(), at/'features')
        change(next(folder.iterdir()))
        evaluate(at, '--cache', '--cache_dir', folder)
    return do


for name, do, *says in (
    ('a file instead of the folder', lambda at: evaluate(at, '--cache', '--cache_dir', write(at/'file', b'')), 'cannot be written', '--cache_dir'),
    ('no room by the limit', lambda at: evaluate(at, '--cache', '--cache_limit', 0), 'more than the limit of 0 GB', 'raise --cache_limit'),
    ('a file of features cut off', features_with(lambda d: os.truncate(d/'map0.f16', 99)), 'map0.f16'),
    ('a file of features missing', features_with(lambda d: (d/'map1.f16').unlink()), 'map1.f16'),
    ('features of something else without a description', features_with(lambda d: write(d.with_name('other')/'about.json', '') and shutil.rmtree(d)),
     'about.json'),
    ('features of something else without their size', features_with(lambda d: write(d.with_name('other')/'about.json', '{}') and shutil.rmtree(d)),
     'about.json')):
    refused('features', name, do, *says)


def computed_again(at):
    features_with(lambda d: os.truncate(d/'done', 3))(at)
    results = [next(d.glob('*/episodes.jsonl')).read_text() for d in (at/'out', shared()/'cached')]
    assert results[0] == results[1]
works('features', 'a list of what is done that is cut off', 'the rest is computed again', computed_again)


# ---- configurations

def as_dict(**change): return make_config('shapes').to_dict() | change
for name, do, *says in (
    ('an unknown recipe', lambda at: make_config('secret'), "'secret'", 'choose one of paper'),
    ('an unknown setting', lambda at: make_config('paper', colour='red'), "'colour'", 'choose among'),
    ('data without a name', lambda at: make_config('paper', dict(root='x')), 'no data set None', 'choose one of'),
    ('a model setting that does not exist', lambda at: ModelConfig.from_dict(dict(colour='red')), 'colour', 'Known are'),
    ('a setting of a recipe that does not exist', lambda at: RunConfig.from_dict(as_dict(recipe=dict(colour='red'))), 'colour'),
    ('a configuration without a model', lambda at: RunConfig.from_dict({k: v for k, v in as_dict().items() if k != 'model'}), 'model'),
    ('a configuration with a part too many', lambda at: RunConfig.from_dict(as_dict(colour='red')), 'colour'),
    ('an encoder that does not fit its scales', lambda at: DeepGPNet(ModelConfig('small', 16, (32, 16))), 'scales')):
    refused('configuration', name, do, *says)


# ---- options: a value of the wrong type, out of range, or against another option

def option(command, name, do, *says, **more): refused(f'{command} option', name, do, *says, **more)


WHOLE, NUMBER = 'invalid int value', 'invalid float value'
for words, *says in (
    ('--iterations many', '--iterations', WHOLE), ('--iterations 0', 'iterations must be at least 1'), ('--batch 2.5', '--batch', WHOLE),
    ('--batch 0', 'batch must be at least 1'), ('--micro all', '--micro', WHOLE), ('--micro 0', 'micro must be at least 1'),
    ('--shots five', '--shots', WHOLE), ('--shots -1', 'shots must be at least 1'), ('--shots 500', '500 shot(s)', 'Use fewer shots'),
    ('--size big', '--size', WHOLE), ('--size 0', 'size must be at least 1'),
    ('--augment maybe', '--augment', 'say true or false'), ('--recolour 2', '--recolour', 'say true or false'),
    ('--optimizer sgd', "optimizer must be 'adam' or 'adamw'"), ('--lr fast', '--lr', NUMBER), ('--lr 0', 'lr must be positive'),
    ('--lr nan', 'lr must be positive'),
    ('--lr inf', 'lr must be positive'), ('--lr_backbone slow', '--lr_backbone', NUMBER), ('--lr_backbone -1', 'lr_backbone'),
    ('--weight_decay much', '--weight_decay', NUMBER), ('--weight_decay -1', 'weight_decay'), ('--decay less', '--decay', NUMBER), ('--decay -1', 'decay'),
    ('--decay nan', 'decay'),
    ('--decay_at half', '--decay_at', NUMBER), ('--decay_at 50', 'decay_at'), ('--foreground_weight heavy', '--foreground_weight', NUMBER),
    ('--foreground_weight 0', 'foreground_weight must be positive'), ('--precision fp8', "precision must be 'no', 'bf16' or 'fp16'"),
    ('--held_out some', '--held_out', WHOLE), ('--held_out 99', 'held_out must be below'), ('--held_out -1', 'held_out must be'),
    ('--skip_broken often', '--skip_broken', 'say true or false'), ('--cache perhaps', '--cache', 'say true or false'),
    ('--cache true', 'set cache false'), ('--seed lucky', '--seed', WHOLE), ('--seed -1', 'seed'), ('--backbone vgg16', "'vgg16'", 'choose one of'),
    ('--backbone custom', 'custom'), ('--dim wide', '--dim', WHOLE), ('--dim 0', 'dim'), ('--dim -5', 'dim'),
    ('--scales 8,x', '--scales', 'whole numbers separated by commas'), ('--scales 7', 'stride must be 8 or 16'), ('--scales 32,16', 'scales'),
    ('--freeze_bn mostly', '--freeze_bn', 'say true or false'), ('--freeze_affine x', '--freeze_affine', 'say true or false'),
    ('--freeze_backbone ice', '--freeze_backbone', 'say true or false'), ('--unit_features ice', '--unit_features', 'say true or false'), ('--mask_encoder fancy', "mask_encoder must be 'lwl' or 'pool'"),
    ('--encoding_dim e', '--encoding_dim', WHOLE), ('--encoding_dim -1', 'encoding_dim'), ('--encoding_dim 0', 'encoding_dim'),
    ('--learner oracle', "'oracle'", 'choose one of'), ('--learner prototype', "prototype learner needs mask_encoder='pool'"),
    ('--kernel cubic', "'cubic'", 'choose one of'), ('--output all', 'output must be one of'), ('--noise_var loud', '--noise_var', NUMBER),
    ('--noise_var -1', 'noise_var must be'), ('--length_sq long', '--length_sq', NUMBER), ('--length_sq -1', 'length_sq must be'),
    ('--window open', '--window', WHOLE), ('--window 4', 'window'), ('--window 0', 'window'), ('--support_stride s', '--support_stride', WHOLE),
    ('--support_stride 0', 'support_stride'), ('--support_stride -2', 'support_stride'), ('--max_points few', '--max_points', WHOLE),
    ('--max_points 0', 'max_points'), ('--decoder_width w', '--decoder_width', WHOLE), ('--decoder_width 0', 'decoder_width'),
    ('--decoder_width -8', 'decoder_width'), ('--final_relu si', '--final_relu', 'say true or false'),
    ('--upsample cubic', "upsample must be 'nearest' or 'bilinear'"),
    ('--recipe secret', "'secret'", 'choose one of paper'), ('--resume now', 'unrecognized arguments: now'), ('--show all', 'unrecognized arguments: all'),
    ('--cpu 2', 'unrecognized arguments: 2'), ('--download weights.pth', 'unrecognized arguments: weights.pth'),
    ('--workers some', '--workers', WHOLE), ('--workers -1', 'workers'), ('--checkpoint_every often', '--checkpoint_every', WHOLE),
    ('--checkpoint_every 0', 'checkpoint_every must be at least 1'), ('--picture_every x', '--picture_every', WHOLE),
    ('--picture_every -1', 'picture_every'), ('--cache_limit much', '--cache_limit', NUMBER), ('--dataset imagenet', "'imagenet'", 'choose one of shapes'),
    ('--fold first', '--fold', WHOLE), ('--fold 4', 'fold must be from 0 to 3'), ('--fold -1', 'fold must be from 0 to 3'),
    ('--dataset pascal', 'pascal needs root'), ('--dataset folder --root here --data', 'here is not a folder'),
    ('--data side', '--data takes NAME=VALUE', "'side'"), ('--data colour=red', 'shapes', 'colour'), ('--data =5', 'shapes'),
    ('--data side=8', 'side must be at least 16'),
    ('--data side=wide', 'side'), ('--data n_train=many', 'n_train'), ('--data n_train=0', 'n at least 1'), ('--data n_train=2', 'Use fewer shots'),
    ('--data seed=-1', 'seed'), ('--data seed=lucky', 'seed'), ('--data difficulty=hard', "difficulty must be 'looks' or 'outline'"),
    ('--data min_area=large', 'min_area'), ('--data min_area=-1', 'min_area'), ('--data min_area=999999', 'lower min_area'),
    ('--data min_images=few', 'min_images'), ('--learning_rate 1', 'unrecognized arguments: --learning_rate')):
    option('deepgp_train', words, lambda at, words=words: train(at, *words.replace('--data ', '--data n_train=60 n_val=60 side=48 ').split()), *says)
option('deepgp_train', '--weights gone.pth', lambda at: train(at, *'--backbone resnet18 --scales 16 --weights gone.pth'.split()), 'no weights file', 'gone.pth')
for name in ('resnet18', 'timm:resnet18'):
    option('deepgp_train', f'--backbone {name} and no --weights', lambda at, name=name: train(at, '--backbone', name, '--scales', '16'), f'{name} has no weights', '--weights random')
option('deepgp_train', 'no --out', lambda at: run('deepgp_train', *TRAIN), 'Give --out FOLDER')
option('deepgp_train', '--out, a file', lambda at: train(at, '--out', write(at/'file', b'')), 'file cannot be written', 'choose another --out')
option('deepgp_train', '--cache_dir, a file', lambda at: train(at, *'--cache true --augment false --freeze_backbone true --cache_dir'.split(),
    write(at/'file', b'')), 'cannot be written', '--cache_dir')
option('deepgp_train', '--cache_limit -1', lambda at: train(at, *'--cache true --augment false --freeze_backbone true --cache_limit -1'.split()),
       '--cache_limit')
option('deepgp_train', '--cache_limit nan', lambda at: train(at, *'--cache true --augment false --freeze_backbone true --cache_limit nan'.split()),
       '--cache_limit')
for words, *says in (('--data folds=1', '4 classes cannot make 1 folds'), ('--data folds=9', '4 classes cannot make 9 folds'), ('--data folds=some', 'folds'), ('--data foreground=cat', 'foreground takes numbers'),
                     ('--fold 4 --data', 'fold must be from 0 to 3'), ('--data train_list=aug', 'folder', 'train_list')):
    option('deepgp_train', f'--dataset folder {words}', lambda at,
           words=words: train(at, '--recipe', 'shapes', '--dataset', 'folder', '--root', folder(), *words.split()), *says)
for words, *says in (('split=odd', "'interleaved'", "'contiguous'"), ('masks=thin', "'full' or 'compat'"), ('pascal_root=x', 'coco', 'pascal_root')):
    option('deepgp_train', f'--dataset coco --data {words}', lambda at,
           words=words: train(at, '--recipe', 'shapes', '--dataset', 'coco', '--root', built_coco(), '--data', words), *says)
option('deepgp_train', '--dataset coco2pascal without pascal_root',
       lambda at: train(at, '--recipe', 'shapes', '--dataset', 'coco2pascal', '--root', built_coco(), '--data'), 'coco2pascal needs', 'pascal_root')

for words, *says in (
    ('--learner oracle', '--learner', 'invalid choice'), ('--learner gp', 'Name trained models, or a --learner'),
    ('--backbone resnet18', '--backbone', '--learner'), ('--weights gone.pth', '--weights', '--learner'), ('--levels 1', '--levels', '--learner'),
    ('--levels some', '--levels', WHOLE),
    ('--download now', 'now'), ('--shots', '--shots', 'expected at least one argument'), ('--shots few', '--shots', WHOLE),
    ('--shots 0', 'shots must be at least 1'), ('--shots 500', '500 shot(s)', 'Use fewer shots'),
    ('--episodes some', '--episodes', WHOLE),
    ('--episodes -1', 'episodes must be at least 1'), ('--seed lucky', '--seed', WHOLE), ('--seed -1', 'seed'), ('--size big', '--size', WHOLE),
    ('--size 0', 'size'), ('--size -5', 'size must be at least 1'),
    ('--queries q', '--queries', WHOLE), ('--queries 0', 'queries must be at least 1'), ('--queries 500', '500 query', 'Use fewer shots'),
    ('--list', '--list', 'expected one argument'), ('--table photographs', "no table 'photographs'"),
    ('--format word', '--format', 'invalid choice'), ('--workers w', '--workers', WHOLE), ('--workers -1', 'workers'),
    ('--cpu=2', '--cpu', 'ignored explicit argument'), ('--plain=yes', '--plain', 'ignored explicit argument'),
    ('--cache=yes', '--cache', 'ignored explicit argument'),
    ('--cache_limit much', '--cache_limit', NUMBER), ('--cache --cache_limit -1', '--cache_limit'), ('--dataset imagenet', "'imagenet'", 'choose one of'),
    ('--dataset pascal --root gone --data', 'gone is not a folder'), ('--fold 7', 'fold must be from 0 to 3'), ('--fold x', '--fold', WHOLE),
    ('--data n_val', '--data takes NAME=VALUE'), ('--data n_val=many', 'n_val'), ('--colour red', 'unrecognized arguments: --colour')):
    option('deepgp_eval', words, lambda at, words=words: evaluate(at, *words.split()), *says)
option('deepgp_eval', 'neither a model nor a --learner', lambda at: run('deepgp_eval', *EVALUATE, '--out', at/'out'), 'what shall be evaluated',
       'Name trained models')
option('deepgp_eval', '--episodes 0', lambda at: before(evaluation, 'evaluate', lambda: evaluate(at, '--episodes', 0)), 'episodes must be at least 1')
option('deepgp_eval', '--out, a file', lambda at: evaluate(at, '--out', write(at/'file', b'')), 'file', '--out')
option('deepgp_eval', '--write_list into a file that is a folder', lambda at: evaluate(at, '--write_list', at), '--write_list')
option('deepgp_eval', '--plot into a folder that is a file', lambda at: evaluate(at, '--plot', write(at/'file', b'')), 'file', '--plot')
option('deepgp_eval', '--cache_dir, a file', lambda at: evaluate(at, '--cache', '--cache_dir', write(at/'file', b'')), 'cannot be written', '--cache_dir')


def untrained(at, *words): return run('deepgp_eval', '--learner', 'gp', '--backbone', 'resnet18', *EVALUATE, '--out', at/'out', *words)
option('deepgp_eval', '--learner gp without --weights', lambda at: untrained(at), '--weights FILE')
option('deepgp_eval', '--learner gp --weights of a file that is not there', lambda at: untrained(at, '--weights', at/'gone.pth'), 'gone.pth')
option('deepgp_eval', '--learner gp --backbone vgg16', lambda at: untrained(at, '--weights', backbone(), '--backbone', 'vgg16'), "'vgg16'", 'choose one of')
for levels in (0, -1, 9): option('deepgp_eval', f'--learner gp --levels {levels}', lambda at,
                                 levels=levels: untrained(at, '--weights', backbone(), '--levels', levels), 'levels')

for words, *says in (
    ('--size big', '--size', WHOLE), ('--size 16', 'size must be at least 32'), ('--size 0', 'size must be at least 32'),
    ('--size -5', 'size must be at least 32'), ('--batch all', '--batch', WHOLE), ('--batch 0', 'batch must be at least 1'),
    ('--classes cat cat', '--classes names a class twice'),
    ('--classes', '--classes', 'expected at least one argument'), ('--weights w.pth', 'not both', 'give --model or --weights'),
    ('--backbone resnet18', '--backbone', '--weights'), ('--download', '--download', '--weights'), ('--force=yes', '--force', 'ignored explicit argument'),
    ('--cpu=no', '--cpu', 'ignored explicit argument'), ('--model gone', "'gone'", 'give a checkpoint'), ('--supprt x', 'unrecognized arguments: --supprt'),
    ('--sup x', 'unrecognized arguments: --sup'), ('--foreground cat', 'foreground takes numbers', "'cat'"), ('--foreground', '--foreground', 'at least one argument'),
    ('--foreground 9', '0.png is empty, with foreground 9'), ('--ignore 256', 'ignore takes numbers', 'from 0 to 255'), ('--ignore 1', '0.png is empty, with ignore 1'),
    ('--foreground 1 --ignore 1,3', '1 cannot be both'), ('--threshold soft', 'threshold must be a number', "'soft'"), ('--threshold 0', 'threshold must be a number above 0'),
    ('--threshold 128', '0.png is empty, with threshold 128'), ('--threshold 128 --foreground 1', 'threshold goes without foreground')):
    option('deepgp_segment', words, lambda at, words=words: segment(at, write(at/'a.jpg', JPEG), more=words.split()), *says)
for left in ('support', 'query', 'out'):
    option('deepgp_segment', f'no --{left}', lambda at, left=left: run('deepgp_segment',
        *(w for o in ('support', 'query', 'out') if o != left for w in (f'--{o}', at))), 'required', f'--{left}')
option('deepgp_segment', '--out, a file', lambda at: segment(at, write(at/'a.jpg', JPEG), out='a.jpg'), 'a.jpg cannot be written', 'choose another --out')
for where, place in (('the support folder', 'known'), ('a folder in the support folder', 'known/results'), ('the query folder', 'new'), ('a folder deep in the query folder', 'new/a/b'),
                     ('the support folder, by a link', 'link')):
    option('deepgp_segment', f'--out in {where}, with --force', lambda at, place=place: among(at, place), 'choose another --out', 'come from')
def among(at, place):
    copied(support(), at/'known'), write(at/'new/a.jpg', JPEG), (at/'link').symlink_to(at/'known')
    files = lambda: {p: p.read_bytes() for p in at.rglob('*') if p.is_file()}
    before = files()
    try: segment(at, at/'new', known=at/'known', out=place, more=['--force'])
    finally: assert files() == before
option('deepgp_segment', '--query without a file', lambda at: run('deepgp_segment', '--support', support(), '--out', at/'out', '--query'), '--query',
       'expected at least one argument')


def twice(at):
    segment(at, write(at/'a.jpg', JPEG), out='results')
    before = {p: p.read_bytes() for p in (at/'results').rglob('*') if p.is_file()}
    try: segment(at, at/'a.jpg', out='results')
    finally: assert before == {p: p.read_bytes() for p in (at/'results').rglob('*') if p.is_file()}
option('deepgp_segment', '--out with results in it, without --force', twice, 'summary.json exists', 'overwrite with --force')


def forbidden(at):
    (at/'results').mkdir(), write(at/'a.jpg', JPEG), model(), support()
    with without_rights(at/'results', 0o555): segment(at, at/'a.jpg', out='results')
option('deepgp_segment', '--out into which nothing may be written', forbidden, 'results cannot be written', 'mend its permissions')


def giant(at):
    with little_memory(): segment(at, write(at/'a.jpg', JPEG), more=('--size', 200_000))
option('deepgp_segment', '--size 200000', giant, 'size')

SHOWN = dict(voc='VOC', coco='COCO', built='COCO', folder='FOLDER', weights='FILE')
for words, *says in (
    ('', 'required'), ('paint shapes', "no job 'paint'", 'choose build, check or info'), ('check pascal', 'pascal needs the folder', 'FOLDER'),
    ('check imagenet .', "'imagenet'", 'choose shapes, pascal, coco or folder'), ('build shapes', 'nothing to build', 'choose pascal or coco'),
    ('build folder .', 'nothing to build', 'choose pascal or coco'), ('build pascal {voc}', '--sbd FOLDER'),
    ('build coco {coco} --masks thin', "'full' or 'compat'"), ('check coco {built} --masks thin', "'full' or 'compat'"),
    ('check coco {built} --split odd', "'interleaved'", "'contiguous'"),
    ('check pascal {voc} --train_list all', 'all cannot be read'), ('check pascal {voc} --workers some', '--workers', WHOLE),
    ('check pascal {voc} --workers -1', 'workers'), ('check pascal {voc} --workers 0', 'workers'), ('check pascal {voc}', 'complete set'),
    ('check pascal {voc} --part=x', '--part', 'ignored explicit'),
    ('info folder {folder} --min_area big', '--min_area', WHOLE), ('info folder {folder} --min_area 0', 'min_area must be at least 1'),
    ('info folder {folder} --min_area -1', 'min_area must be at least 1'), ('info folder {folder} --min_area 99999', 'lower min_area'),
    ('check folder {folder} --foreground cat', 'foreground takes numbers', "'cat'"), ('check folder {folder} --ignore 256', 'ignore takes numbers'),
    ('check folder {folder} --threshold soft', 'threshold must be a number'), ('check folder {folder} --foreground 1', 'has label maps', 'classes.txt'),
    ('check pascal {voc} --foreground 1', 'not for pascal'),
    ('info folder {folder} --colour red', 'unrecognized arguments: --colour')):
    option('deepgp_data', words.format(**SHOWN) or 'nothing at all', lambda at,
           words=words: run('deepgp_data', *words.format(voc=voc(), coco=coco(), built=built_coco() if '{built}' in words else '', folder=folder()).split()),
           *says)
option('deepgp_data', 'info with --out, a file', lambda at: run('deepgp_data', 'info', 'folder', copied(folder(), at/'data'), '--min_area', 50, '--out',
    write(at/'file', b'')), 'file', '--out')
option('deepgp_data', 'build pascal with --sbd that is VOC', lambda at: run('deepgp_data', 'build', 'pascal', voc(), '--sbd', voc()), 'does not look like SBD')

for words, *says in (
    ('', 'required'), ('nothing', "no benchmark 'nothing'", 'choose gp'), ('gp --shots few', 'shots must be positive whole numbers', "'few'"),
    ('gp --shots 0', 'shots must be positive whole numbers'), ('gp --shots 1,,5', 'shots must be positive whole numbers'),
    ('gp --batch some', '--batch', WHOLE),
    ('gp --batch 0', 'batch and size must be at least 1'), ('gp --repeats few', '--repeats', WHOLE),
    ('gp --repeats 0', 'repeats, batch and size must be at least 1'), ('episode --size 0', 'size must be at least 1'), ('episode --size x', '--size', WHOLE),
    ('episode --backbone vgg16', "'vgg16'", 'choose one of'),
    ('cache --width w', '--width', WHOLE), ('scale --backbone vgg16', "'vgg16'", 'choose one of'), ('gp --device abacus', 'device must be cpu or cuda'),
    ('data --dataset imagenet', "'imagenet'", 'choose one of'),
    ('data --dataset pascal', 'pascal needs root'), ('data --dataset pascal --root gone', 'gone is not a folder'),
    ('data --workers none', 'workers must be positive whole numbers'), ('gp --alone=x', '--alone', 'ignored explicit'),
    ('episode --compiled=x', '--compiled', 'ignored explicit'), ('gp --colour red', 'unrecognized arguments')):
    option('deepgp_bench', words or 'nothing at all', lambda at, words=words: run('deepgp_bench', *words.split()), *says)


def no_gpu(at):
    with patch('torch.cuda.is_available', return_value=False): run('deepgp_bench', 'gp', '--device', 'cuda')
option('deepgp_bench', 'gp --device cuda without a GPU', no_gpu, 'use --device cpu')


option('deepgp_bench', 'cache --width 0', lambda at: before(bench_data, 'bench_cache', lambda: run('deepgp_bench', 'cache', '--width', 0)), 'width')
option('deepgp_bench', 'gp --json_file in a folder that is a file',
       lambda at: before(bench, 'bench_gp', lambda: run('deepgp_bench', 'gp', '--json_file', write(at/'file', b'')/'answer.json')), 'file', '--json_file')

for words, *says in (
    ('', 'required'), ('shapes', 'Give --out FOLDER'), ('poems --out out', "no study 'poems'", 'choose shapes or photographs'),
    ('shapes --out out --iterations some', '--iterations', WHOLE), ('shapes --out out --iterations 0', 'iterations and episodes must be at least 1'),
    ('shapes --out out --episodes x', '--episodes', WHOLE),
    ('shapes --out out --episodes -1', 'iterations and episodes must be at least 1'), ('shapes --out out --jobs all', '--jobs', WHOLE),
    ('shapes --out out --jobs -1', 'jobs must be at least 1'), ('shapes --out out --jobs 0', 'jobs must be at least 1'),
    ('shapes --out out --tables=x', '--tables', 'ignored explicit'),
    ('photographs --out out', 'photographs needs --root', '--weights'), ('photographs --out out --root {voc}', 'photographs needs --root', '--weights'),
    ('photographs --out out --root gone --weights {weights}', 'gone is not a folder'), ('photographs --out out --root {voc} --weights gone.pth', 'gone.pth'),
    ('shapes --out file', 'file', '--out'), ('photographs --out out --root {voc} --weights {weights} --cache_dir file', 'file', '--cache_dir'),
    ('shapes --out out --root {voc}', '--root', 'photographs')):
    def do(at, words=words):
        write(at/'file', b'')
        before(evidence, 'start_run', lambda: run('deepgp_study', *words.format(voc=voc(), weights=backbone()).split()))
    option('deepgp_study', words.format(**SHOWN) or 'nothing at all', do, *says)


def study(content):
    "Show a study in which the note of a finished run was changed"
    def do(at):
        write(at/'out/mean_fold0/done.json', content)
        run('deepgp_study', 'shapes', '--out', at/'out', '--tables')
    return do


refused('run', 'a study with a damaged note of a finished run', study('{"comm'), 'done.json')
works('run', 'a study with an empty note of a finished run', 'the run counts as not made', study('{}'))

for words, *says in (
    ('--steps many', '--steps', WHOLE), ('--steps 0', 'steps and episodes must be at least 1'), ('--episodes some', '--episodes', WHOLE),
    ('--episodes 0', 'steps and episodes must be at least 1'), ('--out file', 'file', '--out'), ('--fold 1', 'unrecognized arguments: --fold')):
    def do(at, words=words):
        write(at/'file', b'')
        before(demo, 'train', lambda: run('deepgp_demo', *words.split()))
    option('deepgp_demo', words, do, *says)
