"Options of `deepgp_segment`"
from ..case import WHOLE, option, run
from ..material import copied, model, segment, support
from ..pictures import JPEG, little_memory, without_rights, write

for words, *says in (
    ('--size big', '--size', WHOLE), ('--size 16', 'size must be at least 32'),
    ('--size 0', 'size must be at least 32'), ('--size -5', 'size must be at least 32'),
    ('--batch all', '--batch', WHOLE), ('--batch 0', 'batch must be at least 1'),
    ('--classes cat cat', '--classes names a class twice'),
    ('--classes', '--classes', 'expected at least one argument'),
    ('--edges maybe', '--edges', 'invalid choice', 'maybe'), ('--edges', '--edges', 'expected one argument'),
    ('--weights w.pth', 'not both', 'give --model or --weights'), ('--backbone resnet18', '--backbone', '--weights'),
    ('--download', '--download', '--weights'), ('--force=yes', '--force', 'ignored explicit argument'),
    ('--cpu=no', '--cpu', 'ignored explicit argument'), ('--coco=no', '--coco', 'ignored explicit argument'),
    ('--model gone', "'gone'", 'give a checkpoint'),
    ('--supprt x', 'unrecognized arguments: --supprt'), ('--sup x', 'unrecognized arguments: --sup'),
    ('--foreground cat', 'foreground takes numbers', "'cat'"),
    ('--foreground', '--foreground', 'at least one argument'), ('--foreground 9', '0.png is empty, with foreground 9'),
    ('--ignore 256', 'ignore takes numbers', 'from 0 to 255'), ('--ignore 1', '0.png is empty, with ignore 1'),
    ('--foreground 1 --ignore 1,3', '1 cannot be both'), ('--threshold soft', 'threshold must be a number', "'soft'"),
    ('--threshold 0', 'threshold must be a number above 0'), ('--threshold 128', '0.png is empty, with threshold 128'),
    ('--threshold 128 --foreground 1', 'threshold goes without foreground')):
    option('deepgp_segment', words, lambda at, words=words: segment(at, write(at/'a.jpg', JPEG), more=words.split()),
           *says)
for left in ('support', 'query', 'out'):
    option('deepgp_segment', f'no --{left}', lambda at, left=left: run('deepgp_segment',
        *(w for o in ('support', 'query', 'out') if o != left for w in (f'--{o}', at))), 'required', f'--{left}')
option('deepgp_segment', '--out, a file', lambda at: segment(at, write(at/'a.jpg', JPEG), out='a.jpg'),
       'a.jpg cannot be written', 'choose another --out')
for where, place in (
    ('the support folder', 'known'), ('a folder in the support folder', 'known/results'), ('the query folder', 'new'),
    ('a folder deep in the query folder', 'new/a/b'), ('the support folder, by a link', 'link')):
    option('deepgp_segment', f'--out in {where}, with --force', lambda at, place=place: among(at, place),
           'choose another --out', 'come from')
def among(at, place):
    copied(support(), at/'known'), write(at/'new/a.jpg', JPEG), (at/'link').symlink_to(at/'known')
    files = lambda: {p: p.read_bytes() for p in at.rglob('*') if p.is_file()}
    before = files()
    try: segment(at, at/'new', known=at/'known', out=place, more=['--force'])
    finally: assert files() == before
option('deepgp_segment', '--query without a file',
       lambda at: run('deepgp_segment', '--support', support(), '--out', at/'out', '--query'), '--query',
       'expected at least one argument')


def twice(at):
    segment(at, write(at/'a.jpg', JPEG), out='results')
    before = {p: p.read_bytes() for p in (at/'results').rglob('*') if p.is_file()}
    try: segment(at, at/'a.jpg', out='results')
    finally: assert before == {p: p.read_bytes() for p in (at/'results').rglob('*') if p.is_file()}
option('deepgp_segment', '--out with results in it, without --force', twice, 'summary.json exists',
       'overwrite with --force')


def forbidden(at):
    (at/'results').mkdir(), write(at/'a.jpg', JPEG), model(), support()
    with without_rights(at/'results', 0o555): segment(at, at/'a.jpg', out='results')
option('deepgp_segment', '--out into which nothing may be written', forbidden, 'results cannot be written',
       'fix its permissions')


def giant(at):
    with little_memory(): segment(at, write(at/'a.jpg', JPEG), more=('--size', 200_000))
option('deepgp_segment', '--size 200000', giant, 'size')
