"""Work that is killed at random moments, again and again, and must come to what an undisturbed run gives.

usage: python tests/faults.py train|evaluate|index|pascal|coco|features|segment KILLS FOLDER
       python tests/faults.py train|evaluate|pascal|segment full|readonly FOLDER

Both print JSON. The second is about a disk that fills up, or a folder that may no longer be written.

Children are forked from a process that has imported everything, so a kill costs no start-up."""
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from deepgp_fss import training
from deepgp_fss.commands import deepgp_data, deepgp_eval, deepgp_segment, deepgp_train
from deepgp_fss.datasets import FewShotData, folder_set
from deepgp_fss.encoders import SmallEncoder
from deepgp_fss.features import FeatureCache, fill
from harness import as_anybody, wait_until
from layouts import category_ids, make_voc, square

TINY = ('--data n_train=60 n_val=60 side=48 --batch 4 --shots 1 --size 48 --dim 16 --encoding_dim 8 --decoder_width 16 '
        '--cpu --picture_every 5')


def label_maps(root, n, side=48):
    "A folder with label maps of four classes"
    for name in ('images', 'masks'): (root/name).mkdir(parents=True)
    for i in range(n):
        labels = np.zeros((side, side), np.uint8)
        labels[8:30, 8:30], labels[32:44, 8:30] = 1 + i % 4, i % 3
        Image.fromarray(np.repeat(labels[..., None]*50, 3, 2)).save(root/f'images/{i:03}.jpg')
        Image.fromarray(labels).save(root/f'masks/{i:03}.png')
    (root/'classes.txt').write_text('1 one\n2 two\n3 three\n4 four\n')
    return root


# Each work says what is prepared once (and copied for every attempt), what is done in a folder, and which files of the
# result count

class Train:
    begun = 'run/[clst]*'  # configuration, log, state
    files = 'model.safetensors', 'log.csv', 'curves.png', 'report.md', 'pictures/*.png'
    def prepare(self, at): pass
    def do(self, at):
        # TensorBoard's files hold the time; git trusts only the owner of a folder
        training._board = training.git_state = lambda *args: None
        resume = ['--resume'] if (at/'run/state.safetensors').exists() else []
        options = '--iterations 12 --checkpoint_every 2'.split()
        deepgp_train([*TINY.split(), *options, '--out', str(at/'run'), *resume])
    def result(self, at): return at/'run'


class Evaluate:
    begun = 'eval/*/*'
    files = '*/episodes.jsonl', '*/result.json', '*/reliability.png'
    def prepare(self, at):
        self.model = at/'model'
        in_child(lambda: deepgp_train([*TINY.split(), '--iterations', '2', '--out', str(self.model)]))
    def do(self, at): deepgp_eval([str(self.model), *'--shots 1 2 --episodes 40 --cpu --out'.split(), str(at/'eval')])
    def result(self, at): return at/'eval'


class Index:
    files = '*.txt',
    def prepare(self, at): self.copied = label_maps(at/'data', 400)
    def do(self, at): folder_set(at/'data').areas
    def result(self, at): return at/'data/deepgp_index'


class Pascal:
    begun = 'VOC2012/SegmentationClassAug/*.png'
    files = '*.png',
    def prepare(self, at):
        years = dict(train=2007, val=2008, sbd=2009)
        names = {name: [f'{year}_{i:06}' for i in range(60)] for name, year in years.items()}
        names['main'] = ['2009_000000']
        self.copied, self.sbd = make_voc(at/'data', names)
    def do(self, at): deepgp_data('build', 'pascal', at/'VOC2012', sbd=self.sbd)
    def result(self, at): return at/'VOC2012/SegmentationClassAug'


class Coco:
    files = '**/*.png', '**/list.txt'
    def prepare(self, at):
        self.copied, ids = at/'coco', list(category_ids().items())
        (self.copied/'annotations').mkdir(parents=True)
        for split in ('train', 'val'):
            (self.copied/f'{split}2014').mkdir()
            images = [dict(id=i, file_name=f'COCO_{split}2014_{i:012}.jpg', height=120, width=160) for i in range(150)]
            for im in images: (self.copied/f'{split}2014'/im['file_name']).touch()  # only images with files are drawn
            drawn = [dict(id=i, image_id=i, category_id=ids[i % 80][1], iscrowd=0,
                          segmentation=[square(i % 90, i % 60, 40)]) for i in range(150)]
            instances = dict(images=images, annotations=drawn, categories=[dict(id=n, name=c) for c, n in ids])
            (self.copied/f'annotations/instances_{split}2014.json').write_text(json.dumps(instances))
    def do(self, at): deepgp_data('build', 'coco', at/'coco')
    def result(self, at): return at/'coco'


class Features:
    files = '*.f16', 'done'
    def prepare(self, at): self.data = label_maps(at/'data', 160); in_child(lambda: folder_set(self.data).areas)
    def do(self, at):
        torch.manual_seed(0)
        encoder, data = SmallEncoder(16).requires_grad_(False), FewShotData(folder_set(self.data), (1, 2, 3, 4), 50)
        fill(FeatureCache(encoder, data, 48, at/'features'), encoder, data, progress=False)
    def result(self, at): return next((at/'features').iterdir())


class Segment:
    begun = 'out/*/*'
    files = 'masks/*.png', 'overlays/*.jpg', 'uncertainty/*.png', 'variance/*.png'
    def prepare(self, at):
        self.data = label_maps(at/'data', 30)
        self.support = at/'support'
        def not_among_the_first(folder, names): return [n for n in names if n > '003']
        for kind in ('images', 'masks'):
            shutil.copytree(self.data/kind, self.support/kind, ignore=not_among_the_first)
    def do(self, at):
        deepgp_segment(['--support', str(self.support), '--query', str(self.data/'images'), '--out', str(at/'out'),
                        '--model', 'shapes', '--cpu', '--force'])
    def result(self, at): return at/'out'


def begin(work, at):
    "A folder to work in, with a copy of what the work changes"
    at.mkdir(exist_ok=True)
    if hasattr(work, 'copied') and not (at/work.copied.name).exists(): shutil.copytree(work.copied, at/work.copied.name)


def in_child(work):
    "Fork, do it there, and wait"
    if _wait(_fork(work)): raise SystemExit('the undisturbed work failed')


def _fork(work):
    pid = os.fork()
    if pid: return pid
    try:
        with open(os.devnull, 'w') as nothing: os.dup2(nothing.fileno(), 1)
        work()
        os._exit(0)
    except BaseException as e:
        if not isinstance(e, SystemExit): traceback.print_exc()
        elif isinstance(e.code, str): print(e.code, file=sys.stderr)
        sys.stderr.flush()
        os._exit(1 if e.args != (0,) else 0)


def _wait(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _ended(pid, words):
    "What a child that has ended said; None while it works"
    done, status = os.waitpid(pid, os.WNOHANG)
    return f'status {os.waitstatus_to_exitcode(status)}, {words.read_text()!r}' if done else None


def digest(work, at):
    "What counts of a result"
    folder = work.result(at)
    def of(path): return hashlib.sha256(path.read_bytes().replace(str(at).encode(), b'')).hexdigest()
    return {str(p.relative_to(folder)): of(p) for pattern in work.files for p in sorted(folder.glob(pattern))}


def undisturbed(work, at):
    "What the work comes to, and in how many seconds"
    at.mkdir(parents=True, exist_ok=True)
    work.prepare(at)
    begin(work, at/'whole')
    began = time.perf_counter()
    in_child(lambda: work.do(at/'whole'))
    return digest(work, at/'whole'), time.perf_counter() - began


def fill_disk(at):
    "Until nothing fits any more"
    with open(at/'filler', 'wb', buffering=0) as f:
        for size in (2**16, 2**8, 1):
            try:
                while f.write(bytes(size)) == size: pass
            except OSError: pass


def obstruct(name, how, at):
    "Take the disk away when some of the work is done: what does it say, and does it continue when all is well again?"
    work, at = globals()[name.capitalize()](), Path(at).resolve()
    whole, _ = undisturbed(work, at)
    target, words = (at/'disk' if how == 'full' else at)/'cut', at/'said.txt'
    begin(work, target)
    def do():
        os.dup2(os.open(words, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        with as_anybody() if how == 'readonly' else nullcontext(): work.do(target)
    pid = _fork(do)
    wait_until(lambda: len(list(target.glob(work.begun))) >= 3, lambda: _ended(pid, words), f'{name} had begun')
    folders = [p for p in (target, *target.rglob('*')) if p.is_dir()]
    if how == 'full': fill_disk(at/'disk')
    else:
        for p in folders: p.chmod(0o555)
    status = _wait(pid)
    said = words.read_text()
    if how == 'full': (at/'disk/filler').unlink()
    else:
        for p in folders: p.chmod(0o755)
    in_child(lambda: work.do(target))
    same = digest(work, target) == whole
    print(json.dumps(dict(work=name, how=how, status=status, said=said.replace(str(at), '...'), same=same)))


def main(name, kills, at):
    if not kills.isdigit(): return obstruct(name, kills, at)
    work, kills, at, chance = globals()[name.capitalize()](), int(kills), Path(at).resolve(), random.Random(name)
    (whole, lasts), struck, finished = undisturbed(work, at), 0, 0
    while True:
        target = at/f'cut{finished}'
        begin(work, target)
        pid = _fork(lambda: work.do(target))
        if struck < kills:
            time.sleep(chance.uniform(0, lasts))
            os.kill(pid, signal.SIGKILL)
        status = _wait(pid)
        if status == -signal.SIGKILL: struck += 1; continue
        if status: sys.exit(f'{name}: after {struck} kills the work ended with status {status}')
        if digest(work, target) != whole:
            sys.exit(f'{name}: after {struck} kills the result in {target} '
                     f'differs from the undisturbed one in {at/"whole"}')
        finished += 1
        if struck == kills: break
    print(json.dumps(dict(work=name, kills=struck, finished=finished, files=len(whole), seconds=round(lasts, 2))))


if __name__ == '__main__': main(*sys.argv[1:])
