"""A finished run as a model of the package: weights, configuration, evaluation, curves and the looks of its images.

usage: bundle.py RUN NAME [--eight_bits] [--untrained FOLDER]   after deepgp_train --out RUN, and deepgp_eval RUN
       bundle.py NAME [--eight_bits]       a bundled model again; evaluated anew if deepgp_eval NAME has left eval/ here

FOLDER is where deepgp_eval --learner gp has left its results on the same classes.

Weights are kept in half precision; with --eight_bits those of convolutions as 8-bit numbers, with a scale for each
output channel."""
import argparse
import json
import shutil
from pathlib import Path

from deepgp_fss.config import RunConfig
from deepgp_fss.looks import learn_looks, training_images
from deepgp_fss.model import load_checkpoint, save_checkpoint
from deepgp_fss.training import training_data

OUT = Path(__file__).resolve().parent.parent/'deepgp_fss/pretrained'


def evaluated(folder):
    "Results of `deepgp_eval`"
    results = [json.loads(p.read_text()) for p in folder.glob('*/result.json')]
    results.sort(key=lambda r: r['shots'])
    return [{k: v for k, v in r.items() if k not in ('checkpoint', 'model')} for r in results]


def without_folders(values):
    "Paths of the machine that trained, by their last part"
    if isinstance(values, dict): return {k: without_folders(v) for k, v in values.items()}
    if isinstance(values, list): return [without_folders(v) for v in values]
    return Path(values).name if isinstance(values, str) and values.startswith('/') else values


def write_table(name):
    "What the evaluation found, into the model's card"
    card, about = OUT/f'{name}.md', json.loads((OUT/f'{name}.json').read_text())
    if not card.exists(): return print(f'{card} is still to be written')
    rows = ['| shots | mIoU, argmax (95% interval) | mIoU of its masks | calibration error | IoU expected, found |',
            '|---'*5 + '|']
    for r in about['info']['evaluation']:
        fair, (low, high) = r['fair'], r['miou_interval']
        cells = (r['shots'], f"{100*r['miou']:.1f} ({100*low:.1f} to {100*high:.1f})", f"{100*fair['miou']:.1f}",
                 f"{100*fair['ece']:.1f}%", f"{fair['expected']:.2f}, {fair['found']:.2f}")
        rows.append(f'| {" | ".join(map(str, cells))} |')
    before, _, rest = card.read_text().partition('<!-- evaluation -->\n')
    rows = [before + '<!-- evaluation -->', *rows, '<!-- end -->' + rest.partition('<!-- end -->')[2]]
    card.write_text('\n'.join(rows))


def keep(name, model, eight_bits, **info):
    info = model.info | info
    if not info.get('looks'):
        config = RunConfig.from_dict(info['run'])
        info['looks'] = learn_looks(training_images(training_data(config)[0]), config.recipe.size)._asdict()
    info = {key: without_folders(values) for key, values in info.items()}
    path = save_checkpoint(OUT/f'{name}.safetensors', model, True, eight_bits, **info)
    path.chmod(0o644)
    print(f'{path}: {path.stat().st_size/1e6:.2f} MB')
    write_table(name)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split('usage: ')[1])
    parser.add_argument('what', nargs='+')
    parser.add_argument('--eight_bits', action='store_true')
    parser.add_argument('--untrained', type=Path)
    args = parser.parse_args()
    *run, name = args.what
    folder = Path(run[0]) if run else Path()
    anew = dict(evaluation=found) if (found := evaluated(folder/'eval')) else {}
    if not run: return keep(name, load_checkpoint(OUT/f'{name}.safetensors'), args.eight_bits, **anew)
    versions = json.loads((folder/'config.json').read_text())['versions']
    model = load_checkpoint(folder/'model.safetensors')
    if args.untrained: anew['untrained'] = evaluated(args.untrained)
    keep(name, model, args.eight_bits, versions=versions, **anew)
    shutil.copy(folder/'curves.png', OUT/f'{name}_curves.png')


if __name__ == '__main__': main()
