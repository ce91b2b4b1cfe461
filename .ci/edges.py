"""Do masks get better when they follow the edges of the image? Measured on episodes of a part of PASCAL VOC.

usage: python .ci/edges.py VOC (--weights FILE | --model NAME) [--episodes N] [--train] [--out FILE]

With the --weights of a ResNet-50 (`.ci/trunk.py`) nothing else is trained. (The last block of the trunk in the package
was trained along with its model, on these very classes.) Episodes are drawn from the validation images and
the classes of folds 1, 2 and 3 in turn; with --train from training images, to choose settings on. Every episode is
segmented at 5 shots and, with the first of the same five, at 1. FILE collects the rows of several runs."""
import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage

from deepgp_fss.base import IGNORE, progress_bar, read_json, write_json
from deepgp_fss.datasets import open_data
from deepgp_fss.episodes import Episodes
from deepgp_fss.segmenter import FewShotSegmenter
from deepgp_fss.training import versions

OUT = Path(__file__).resolve().parent.parent/'nbs/results/edges.json'
SIZE, TOLERANCE = 320, 2  # pixels


def without_border(mask):
    "Pixels that are not counted get the label of the nearest one that is"
    nearest = ndimage.distance_transform_edt(mask == IGNORE, return_distances=False, return_indices=True)
    return mask[tuple(nearest)] == 1


def boundary(mask): return mask & ~ndimage.binary_erosion(mask, border_value=1)


def boundary_f(guess, truth):
    "F-score of the pixels on the boundary, which may be off by two pixels"
    ours, theirs = boundary(guess), boundary(truth)
    if not ours.any() or not theirs.any(): return 0.
    near_theirs, near_ours = (ndimage.distance_transform_edt(~b) <= TOLERANCE for b in (theirs, ours))
    precision, recall = near_theirs[ours].mean(), near_ours[theirs].mean()
    return float(2*precision*recall/max(precision + recall, 1e-9))


def judge(segmenter, image, truth, edges):
    "One answer: what was met, how many seconds it took, and how often each tenth of probability was right"
    segmenter.follows = edges
    began = time.process_time()
    out = segmenter.predict(image)
    seconds = time.process_time() - began
    guess, object_, counted = out.mask > 0, truth == 1, truth != IGNORE
    tenth = np.minimum((10*out.probability[counted]).astype(int), 9)
    hits, sums, n = (np.bincount(tenth, w, 10) for w in (object_[counted], out.probability[counted], None))
    return dict(inter=int((guess & object_ & counted).sum()), union=int(((guess | object_) & counted).sum()),
                boundary=boundary_f(guess, without_border(truth)), seconds=seconds, hits=hits, sums=sums, n=n)


def summary(rows):
    "mIoU over classes, mean of the boundary F-score, calibration error, time"
    per = {}
    for label, r in rows: per.setdefault(label, []).append((r['inter'], r['union']))
    ious = [np.divide(*np.sum(pairs, 0)) for pairs in per.values()]
    hits, sums, n = (np.sum([r[k] for _, r in rows], 0) for k in ('hits', 'sums', 'n'))
    return dict(miou=float(np.mean(ious)), boundary=float(np.mean([r['boundary'] for _, r in rows])),
                ece=float(np.abs(hits - sums).sum()/n.sum()), classes=len(per), episodes=len(rows),
                milliseconds=1e3*float(np.median([r['seconds'] for _, r in rows])))


def interval(plain, edges, draws=1000):
    "95% interval of the gain in mIoU: episodes drawn again, the same for both"
    rng, gains = np.random.default_rng(0), []
    for _ in range(draws):
        which = rng.integers(len(plain), size=len(plain))
        gains.append(summary([edges[i] for i in which])['miou'] - summary([plain[i] for i in which])['miou'])
    return [float(g) for g in np.percentile(gains, [2.5, 97.5])]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split('usage: ')[1].split('\n')[0])
    parser.add_argument('voc'); parser.add_argument('--model'); parser.add_argument('--weights')
    parser.add_argument('--episodes', type=int, default=300)
    parser.add_argument('--train', action='store_true'); parser.add_argument('--out', type=Path, default=OUT)
    args = parser.parse_args()
    if bool(args.model) == bool(args.weights): parser.error('give --weights or --model')
    torch.set_num_threads(1)
    if args.model: segmenter = FewShotSegmenter.from_pretrained(args.model, SIZE, choose=False, edges=False)
    else: segmenter = FewShotSegmenter.training_free(args.weights, size=SIZE, edges=False)
    folds = [open_data('pascal', root=args.voc, fold=f, min_images=11) for f in (1, 2, 3)]
    sides = [fold.train if args.train else fold.test for fold in folds]
    episodes = [Episodes(side, 5, SIZE, 0, args.episodes, train=False) for side in sides]
    found = {(K, edges): [] for K in (5, 1) for edges in (False, True)}
    for i in progress_bar(range(args.episodes), desc='episodes', show=sys.stderr.isatty()):
        drawn, images = episodes[i % 3].draw(i), sides[i % 3].images
        (image, truth), *support = (images.load(j, drawn.label) for j in (drawn.queries[0], *drawn.supports))
        for K in (5, 1):
            segmenter.fit([x for x, _ in support[:K]], [m for _, m in support[:K]])
            for edges in (False, True): found[K, edges].append((drawn.label, judge(segmenter, image, truth, edges)))
    words = ' '.join(['python .ci/edges.py VOC', *(Path(w).name for w in sys.argv[2:])])
    rows = [dict(model=args.model or 'untrained', images='training' if args.train else 'validation', shots=K,
                 edges=edges, command=words, commit=(versions()['git'] or {}).get('commit'), **summary(each))
            for (K, edges), each in found.items()]
    for r in rows:
        if r['edges']: r['gain_interval'] = interval(found[r['shots'], False], found[r['shots'], True])
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in r.items() if k not in ('command', 'commit')})
    known = read_json(args.out)['rows'] if args.out.exists() else []
    kept = [r for r in known if (r['model'], r['images']) != (rows[0]['model'], rows[0]['images'])]
    write_json(args.out, dict(rows=kept + rows))


if __name__ == '__main__':
    warnings.simplefilter('ignore')
    main()
