"""Trained or not, following edges or not, and at which size: each picture of the package, segmented from all others of
its sample.

usage: python .ci/compare.py [OUT]     writes OUT, by default nbs/results/samples.json; minutes on one core"""
import sys
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

from deepgp_fss.base import IGNORE, write_json
from deepgp_fss.samples import SAMPLES, load_sample
from deepgp_fss.segmenter import FewShotSegmenter
from deepgp_fss.training import versions

OUT = Path(__file__).resolve().parent.parent/'nbs/results/samples.json'
SIZES = 320, 448
WAYS = {'trained': lambda size: FewShotSegmenter.from_pretrained(size=size, choose=False, edges=False),
        'trained, following edges': lambda size: FewShotSegmenter.from_pretrained(size=size, choose=False, edges=True),
        'untrained': lambda size: FewShotSegmenter.training_free(size=size, edges=False),
        'untrained, following edges': lambda size: FewShotSegmenter.training_free(size=size),
        'chosen by the support': lambda size: FewShotSegmenter.from_pretrained(size=size)}


def judge(segmenter, images, masks, i):
    "The IoU of one picture, segmented from the others, and the way that was taken"
    others = [k for k in range(len(images)) if k != i]
    out = segmenter.fit([images[k] for k in others], [masks[k] for k in others]).predict(images[i])
    guess, truth, counted = out.mask > 0, masks[i] == 1, masks[i] != IGNORE
    iou = float((guess & truth & counted).sum()/((guess | truth) & counted).sum())
    return dict(iou=round(iou, 4), way=segmenter.way, edges=segmenter.follows)


def main(out):
    rows = []
    for size in SIZES:
        for way, make in WAYS.items():
            segmenter = make(size)
            for name in SAMPLES:
                sample = load_sample(name)
                images, masks = ([np.array(Image.open(p)) for p in paths] for paths in (sample.images, sample.masks))
                found = [judge(segmenter, images, masks, i) for i in range(len(images))]
                rows.append(dict(way=way, size=size, sample=name, shots=len(images) - 1, pictures=found))
                print(f'{size} {way:<26} {name:<11}', *(f'{r["iou"]:.2f}' for r in found), flush=True)
    write_json(out, dict(command='python .ci/compare.py', rows=rows, versions=versions()))


if __name__ == '__main__':
    warnings.simplefilter('ignore')
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
