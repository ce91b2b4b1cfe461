"Results of evaluations, kept features"
import os
import shutil
from functools import cache

from ..case import inside, refused, shared, works
from ..material import copied, evaluate
from ..pictures import write


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
    ('results with a damaged line in the middle',
     rows(lambda t: '\n'.join((t.splitlines()[0], '{"index": 0, "lab', t.splitlines()[2])) + '\n'), 'episodes.jsonl'),
    ('results with a line without its number', rows(lambda t: t.replace('"index": 0, ', '')), 'episodes.jsonl'),
    ('results that are not text', again(lambda d: write(d/'episodes.jsonl', b'\xff\xfe')), 'episodes.jsonl'),
    ('results of other data', again(lambda d: None, '--data', 'n_val=60', 'side=48', 'seed=7'),
     'is from an evaluation of something else', 'seed 7', 'choose another --out'),
    ('results of another window', again(lambda d: None, '--size', '64'), 'size is 48 there and 64 now',
     'choose another --out'),
    ('results of other images under the same names', rows(lambda t: t.replace('"mark": "', '"mark": "0')),
     'episode 0 was made from other files', 'choose another --out'),
    ('results without the images they are of', rows(lambda t: t.replace('"mark": ', '"marks": ')), 'episodes.jsonl',
     'it is damaged; remove it'),
    ('results of a class that is not evaluated', rows(lambda t: t.replace('"label": ', '"label": 9')),
     'episodes.jsonl')):
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
    ('a file instead of the folder', lambda at: evaluate(at, '--cache', '--cache_dir', write(at/'file', b'')),
     'cannot be written', '--cache_dir'),
    ('no room by the limit', lambda at: evaluate(at, '--cache', '--cache_limit', 0), 'more than the limit of 0 GB',
     'raise --cache_limit'),
    ('a file of features cut off', features_with(lambda d: os.truncate(d/'map0.f16', 99)), 'map0.f16'),
    ('a file of features missing', features_with(lambda d: (d/'map1.f16').unlink()), 'map1.f16'),
    ('features of something else without a description',
     features_with(lambda d: write(d.with_name('other')/'about.json', '') and shutil.rmtree(d)), 'about.json'),
    ('features of something else without their size',
     features_with(lambda d: write(d.with_name('other')/'about.json', '{}') and shutil.rmtree(d)), 'about.json')):
    refused('features', name, do, *says)


def computed_again(at):
    features_with(lambda d: os.truncate(d/'done', 3))(at)
    results = [next(d.glob('*/episodes.jsonl')).read_text() for d in (at/'out', shared()/'cached')]
    assert results[0] == results[1]
works('features', 'a list of what is done that is cut off', 'the rest is computed again', computed_again)
