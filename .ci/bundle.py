"""A finished run as a model of the package: weights in half precision, configuration, evaluation and curves.

usage: python .ci/bundle.py RUN NAME      after deepgp_train --out RUN, and deepgp_eval RUN --shots 1 2 3 5 10
       python .ci/bundle.py NAME          after deepgp_eval NAME --shots 1 2 3 5 10: the weights, evaluated anew"""
import json
import shutil
import sys
from pathlib import Path

from deepgp_fss.model import load_checkpoint, save_checkpoint

OUT = Path(__file__).resolve().parent.parent/'deepgp_fss/pretrained'


def evaluated(what, folder):
    "Results of `deepgp_eval`"
    results = [json.loads(p.read_text()) for p in folder.glob('*/result.json')]
    if not results: raise SystemExit(f'{what} has not been evaluated: deepgp_eval {what} --shots 1 2 3 5 10')
    results.sort(key=lambda r: r['shots'])
    return [{k: v for k, v in r.items() if k not in ('checkpoint', 'model')} for r in results]


def keep(name, model, **info):
    path = save_checkpoint(OUT/f'{name}.safetensors', model, half=True, **model.info | info)
    path.chmod(0o644)
    print(f'{path}: {path.stat().st_size/1e6:.2f} MB')


def bundle(run, name):
    model, saved = load_checkpoint(run/'model.safetensors'), json.loads((run/'config.json').read_text())
    keep(name, model, versions=saved['versions'], evaluation=evaluated(run, run/'eval'))
    shutil.copy(run/'curves.png', OUT/f'{name}_curves.png')


if __name__ == '__main__':
    *run, name = sys.argv[1:]
    if run: bundle(Path(run[0]), name)
    else: keep(name, load_checkpoint(OUT/f'{name}.safetensors'), evaluation=evaluated(name, Path('eval')))
