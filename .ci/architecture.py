"""The picture of the architecture: data goes down once, and every box names the notebooks that are it.

usage: python .ci/architecture.py      writes figures/architecture.png and .svg

Narrow, so that it can be read on a phone, and on a card of its own colour, so that it can be read on dark pages."""
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).resolve().parent.parent
WIDTH, HEIGHT = 100, 132  # units; a unit is a twentieth of an inch
CARD, INK, SOFT = '#fcfcfa', '#1c2126', '#5b6670'
DATA, NETWORK, GP, ANSWER = '#e3eaf2', '#e9e6dc', '#f6d9cf', '#dfeedd'

BOXES = {  # title -> (left, bottom, width, height, colour, the notebooks)
    'data set': (8, 116, 84, 12, DATA, '20 files · 21 shapes · 22 datasets · 23 prepare'),
    'episode': (8, 97, 84, 12, DATA, '24 episodes · 25 features'),
    'mask encoder': (8, 74, 30, 13, NETWORK, '14 encoders'),
    'image encoder': (44, 74, 48, 13, NETWORK, '14 encoders'),
    'Gaussian process': (8, 47, 68, 16, GP, '10 kernels · 11 gp · 12 window\n15 learners (GP and rivals)'),
    'decoder': (8, 25, 84, 12, NETWORK, '16 decoder'),
    'mask and uncertainty': (8, 4, 84, 12, ANSWER, '18 decision · 33 edges · 35 segmenter')}
ARROWS = (  # from, to, what goes down, left end and height of these words
    ((50, 116), (50, 109), '', 0, 0),
    ((23, 97), (23, 87), 'support masks', 24.5, 94),
    ((49, 97), (49, 87), 'support images', 50.5, 94),
    ((83, 97), (83, 87), 'query', 84.5, 94),
    ((23, 74), (23, 63), '$y_s$', 24.5, 69),
    ((49, 74), (49, 63), '$x_s$', 50.5, 69),
    ((70, 74), (70, 63), '$x_q$', 71.5, 69),
    ((40, 47), (40, 37), 'mean and covariance', 41.5, 42),
    ((83, 74), (83, 37), 'fine\ndetail', 84.5, 55),
    ((50, 25), (50, 16), 'scores at full resolution', 51.5, 19.2))


def box(ax, title, left, bottom, width, height, colour, pages):
    ax.add_patch(FancyBboxPatch((left, bottom), width, height, boxstyle='round,pad=0,rounding_size=1.6',
                                facecolor=colour, edgecolor=SOFT, linewidth=1))
    two_lines = '\n' in pages
    middle = left + width/2
    ax.text(middle, bottom + height - (3.6 if two_lines else 3.9), title, size=12, weight='bold', color=INK,
            ha='center', va='center')
    ax.text(middle, bottom + (5.8 if two_lines else 3.8), pages, size=9, color=INK, ha='center', va='center')


def arrow(ax, start, end, words, left, height):
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle='-|>', mutation_scale=14, color=SOFT, linewidth=1.5,
                                 shrinkA=0, shrinkB=0))
    ax.text(left, height, words, size=10, color=INK, va='center', linespacing=1.1)


def picture():
    with mpl.rc_context({'font.family': 'DejaVu Sans', 'mathtext.fontset': 'dejavusans'}):
        fig = Figure(figsize=(WIDTH/20, HEIGHT/20))
        ax = fig.add_axes((0, 0, 1, 1))
        ax.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
        ax.axis('off')
        ax.add_patch(FancyBboxPatch((1, 1), WIDTH - 2, HEIGHT - 2, boxstyle='round,pad=0,rounding_size=3',
                                    facecolor=CARD, edgecolor=SOFT, linewidth=.8))
        ax.add_patch(FancyBboxPatch((4, 22.2), 93, 68.3, boxstyle='round,pad=0,rounding_size=2', facecolor='none',
                                    edgecolor=SOFT, linewidth=1, linestyle=(0, (4, 3))))
        ax.text(8, 41.9, '17 model', size=10, weight='bold', color=SOFT, ha='left', va='center')
        for title, place in BOXES.items(): box(ax, title, *place)
        for one in ARROWS: arrow(ax, *one)
    return fig


def main():
    fig = picture()
    with mpl.rc_context({'svg.hashsalt': 'deepgp_fss', 'svg.fonttype': 'path'}):
        fig.savefig(ROOT/'figures/architecture.svg', transparent=True, metadata=dict(Date=None))
    fig.savefig(ROOT/'figures/architecture.png', dpi=160, transparent=True, metadata=dict(Software=None))


if __name__ == '__main__': sys.exit(main())
