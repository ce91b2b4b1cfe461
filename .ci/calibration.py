"""What are the scores of the untrained GP worth as probabilities, as an estimate of the IoU of a mask, and to tell
whether the class is there? Measured on episodes of a part of PASCAL VOC.

usage: python .ci/calibration.py VOC WEIGHTS [--episodes N] [--train] [--out FILE]

WEIGHTS are those of a ResNet-50 (`.ci/trunk.py`).

Episodes are drawn from the validation images and the classes of folds 1, 2 and 3 in turn; with --train from training
images, to choose the constants of `deepgp_fss.training_free.ODDS` on, which are printed. Each has a query that shows
the class and one that does not, and is asked with the first 1, 2, 5 and 10 of the same support images."""
import argparse
import sys
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.stats import rankdata, spearmanr

from deepgp_fss.base import IGNORE, progress_bar, write_json
from deepgp_fss.datasets import open_data
from deepgp_fss.decision import mask_iou
from deepgp_fss.edges import follow_edges
from deepgp_fss.encoders import Encoded
from deepgp_fss.episodes import Episodes, content_size, image_window, mask_window
from deepgp_fss.model import in_parts, pad_to
from deepgp_fss.segmenter import REACH
from deepgp_fss.training import versions
from deepgp_fss.training_free import ODDS, TrainingFree

OUT = Path(__file__).resolve().parent.parent/'nbs/results/calibration.json'
SIZE, SHOTS, PIXELS = 320, (1, 2, 5, 10), 1500  # of each image, by chance


def sigmoid(x): return 1/(1 + np.exp(-np.clip(x, -50, 50)))


def platt(x, y, prior=(1., 0.), strength=0.):
    "Slope and offset of the log odds that suit scores `x` and truths `y` best, drawn to `prior`"
    def loss(w):
        z, off = w[0]*x + w[1], w - prior
        error = sigmoid(z) - y
        slopes = np.array([error @ x, error.sum()])/len(x) + strength*off
        return (np.logaddexp(0, z) - y*z).mean() + strength*(off @ off)/2, slopes
    return minimize(loss, np.array(prior, float), jac=True, method='BFGS').x


def mean_risk(confidence, error):
    "Area under the risk-coverage curve: the mean error of the most confident ones, over all shares of them"
    sorted_error = error[np.argsort(-confidence, kind='stable')]
    return float((sorted_error.cumsum()/np.arange(1, len(error) + 1)).mean())


def auroc(found, others):
    ranks = rankdata([*found, *others])[:len(found)].sum()
    return float((ranks - len(found)*(len(found) + 1)/2)/(len(found)*len(others)))


class Asked:
    "An untrained GP, and the images of an episode behind its encoder"
    def __init__(self, net, images, masks):
        self.net, windows = net, torch.stack([image_window(x, SIZE) for x in images])[None]
        self.masks = torch.stack([mask_window(m, SIZE) for m in masks])[None]
        maps = in_parts(lambda x: [m[None] for m in net.encoder.trunk(pad_to(x[0], max(net.encoder.strides)))], windows)
        self.images, self.windows = Encoded(maps, windows.shape[-2:]), windows[0]
        self.inside = [content_size(*m.shape, SIZE) for m in masks]

    def learn(self, shots): return self.net.prepare(self.images[:, shots], self.masks[:, shots])

    def gap(self, state, i, details=False):
        "Score of the class less that of the background"
        h, w = self.inside[i]
        logits, (z,) = self.net.infer(state, self.images[:, i:i+1], details=True, content=[(h, w)])
        gap = (logits[0, 0, 1] - logits[0, 0, 0])[:h, :w]
        return (gap, z) if details else gap

    def gaps(self, state, i):
        "The gap as it is, and following edges; and the mean of the variance"
        gap, z = self.gap(state, i, details=True)
        h, w = gap.shape
        edges = follow_edges(gap[None], self.windows[i, :, :h, :w], REACH*self.net.stride)[0]
        return gap, edges, float(z[0, 0, 0, 1].mean())

    def truth(self, i):
        h, w = self.inside[i]
        return self.masks[0, i, :h, :w]


def some(rng, truth, *maps):
    "Values of maps, and the truth, at pixels that count"
    at = (truth != IGNORE).flatten().nonzero()[:, 0].numpy()
    at = rng.choice(at, PIXELS)
    return [m.flatten()[at].numpy().astype(float) for m in (*maps, truth == 1)]


def left_out(asked, K, rng):
    "Scores and truths of each support image, told the others; and who was told"
    if K == 1: return [], []
    states = [asked.learn([k for k in range(K) if k != i]) for i in range(K)]
    seen = [some(rng, asked.truth(i), *asked.gaps(state, i)[:2]) for i, state in enumerate(states)]
    return states, seen


def agreement(masks):
    "Mean Dice of all pairs"
    return float(np.mean([2*(a & b).sum()/max(1, a.sum() + b.sum()) for a, b in combinations(masks, 2)]))


def judge(asked, K, queries, rng, edges, state, others, seen):
    "One episode at K shots: pixels of the query that shows the class, and of both queries what may tell how good"
    slope, offset = ODDS[edges, K > 1]
    found = dict(tell=[])
    for i, there in queries:
        *gaps, variance = asked.gaps(state, i)
        gap, truth = gaps[edges], asked.truth(i)
        p, mask = (slope*gap + offset).sigmoid(), gap > 0
        tell = {'expected IoU': mask_iou(p, mask), 'margin': float((p - .5).abs().mean()), 'variance': -variance,
                'entropy': float((p.xlogy(p) + (1 - p).xlogy(1 - p)).mean()), 'largest score': float(gap.quantile(.99))}
        if K > 2: tell['drop-one Dice'] = agreement([(asked.gap(s, i) > 0).numpy() for s in others])
        if there:
            found['gap'], found['truth'] = some(rng, truth, gap)
            if K > 1:
                x, y = (np.concatenate([s[k] for s in seen]) for k in (edges, 2))
                found['platt'] = platt(x, y, (slope, offset), .03)
            counted = truth != IGNORE
            inter, union = ((op & counted).sum() for op in (mask & (truth == 1), mask | (truth == 1)))
            tell['IoU'] = float(inter/union)
        found['tell'].append(tell)
    return found


def row(K, edges, found):
    "What all episodes say together"
    x, y = (np.concatenate([f[k] for f in found]) for k in ('gap', 'truth'))
    slope, offset = ODDS[edges, K > 1]
    ways = {'as it is': sigmoid(x), 'constants': sigmoid(slope*x + offset)}
    if K > 1: ways['left-out'] = sigmoid(np.concatenate([f['platt'][0]*f['gap'] + f['platt'][1] for f in found]))
    there, absent = ([f['tell'][i] for f in found] for i in (0, 1))
    iou, tells = np.array([t['IoU'] for t in there]), [k for k in absent[0]]
    def values(rows, k): return np.array([t[k] for t in rows])
    return dict(shots=K, edges=edges, episodes=len(found), best=[round(float(v), 2) for v in platt(x, y)],
        probabilities={name: dict(ece=ece(p, y), nll=nll(p, y), risk=mean_risk(np.abs(p - .5), (p > .5) != y))
                       for name, p in ways.items()},
        iou=dict(found=float(iou.mean()), expected=float(values(there, 'expected IoU').mean())),
        tells={k: dict(spearman=float(spearmanr(values(there, k), iou)[0]), risk=mean_risk(values(there, k), 1 - iou),
                       present=auroc(values(there, k), values(absent, k))) for k in tells},
        perfect_risk=mean_risk(iou, 1 - iou), risk=float(1 - iou.mean()))


def ece(p, y):
    tenth = np.minimum((10*p).astype(int), 9)
    hits, sums = (np.bincount(tenth, w, 10) for w in (y, p))
    return float(np.abs(hits - sums).sum()/len(p))


def nll(p, y):
    p = p.clip(1e-6, 1 - 1e-6)
    return float(-(y*np.log(p) + (1 - y)*np.log(1 - p)).mean())


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split('usage: ')[1].split('\n')[0])
    parser.add_argument('voc'); parser.add_argument('weights')
    parser.add_argument('--episodes', type=int, default=150)
    parser.add_argument('--train', action='store_true'); parser.add_argument('--out', type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    net, rng = TrainingFree.from_backbone(weights=args.weights), np.random.default_rng(0)
    folds = [open_data('pascal', root=args.voc, fold=f, min_images=11) for f in (1, 2, 3)]
    sides = [fold.train if args.train else fold.test for fold in folds]
    episodes = [Episodes(side, max(SHOTS), SIZE, 0, args.episodes, train=False) for side in sides]
    found = {(K, edges): [] for K in SHOTS for edges in (False, True)}
    for n in progress_bar(range(args.episodes), desc='episodes', show=sys.stderr.isatty()):
        drawn, images = episodes[n % 3].draw(n), sides[n % 3].images
        loaded = [images.load(j, drawn.label) for j in (*drawn.supports, drawn.queries[0])]
        while True:
            other = images.load(int(rng.integers(len(images))), drawn.label)
            if not (other[1] == 1).any(): break
        asked = Asked(net, *zip(*loaded, other))
        queries = (max(SHOTS), True), (max(SHOTS) + 1, False)
        for K in SHOTS:
            told = asked.learn(list(range(K))), *left_out(asked, K, rng)
            for edges in (False, True): found[K, edges].append(judge(asked, K, queries, rng, edges, *told))
        if n % 10 == 9: print(n + 1, 'episodes', flush=True)
    rows = [row(K, edges, results) for (K, edges), results in found.items()]
    words = ' '.join(['python .ci/calibration.py VOC', *(Path(w).name for w in sys.argv[2:])])
    for r in rows: print(r)
    if not args.train: write_json(args.out, dict(command=words, rows=rows, versions=versions()))


if __name__ == '__main__':
    warnings.simplefilter('ignore')
    with torch.inference_mode(): main()
