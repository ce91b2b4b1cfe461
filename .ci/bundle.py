"""A finished run as a model of the package: weights in half precision, configuration, evaluation and curves.

usage: python .ci/bundle.py RUN NAME      after deepgp_train --out RUN, and deepgp_eval RUN --shots 1 2 3 5 10"""
import json
import shutil
import sys
from pathlib import Path

from deepgp_fss.model import load_checkpoint, save_checkpoint

ROOT = Path(__file__).resolve().parent.parent


def main(run, name):
    run, out = Path(run), ROOT/'deepgp_fss/pretrained'
    model, saved = load_checkpoint(run/'model.safetensors'), json.loads((run/'config.json').read_text())
    results = [json.loads(p.read_text()) for p in run.glob('eval/*/result.json')]
    if not results: raise SystemExit(f'{run} has not been evaluated: deepgp_eval {run} --shots 1 2 3 5 10')
    results = [{k: v for k, v in r.items() if k not in ('checkpoint', 'model')} for r in sorted(results, key=lambda r: r['shots'])]
    path = save_checkpoint(out/f'{name}.safetensors', model, half=True, **model.info, versions=saved['versions'], evaluation=results)
    path.chmod(0o644)
    shutil.copy(run/'curves.png', out/f'{name}_curves.png')
    print(f'{path}: {path.stat().st_size/1e6:.2f} MB')


if __name__ == '__main__': main(*sys.argv[1:])
