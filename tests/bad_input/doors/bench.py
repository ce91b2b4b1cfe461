"Options of `deepgp_bench`"
from unittest.mock import patch

from deepgp_fss import bench, bench_data

from ..case import WHOLE, before, option, run
from ..pictures import write

for words, *says in (
    ('', 'required'), ('nothing', "no benchmark 'nothing'", 'choose gp'),
    ('gp --shots few', 'shots must be positive whole numbers', "'few'"),
    ('gp --shots 0', 'shots must be positive whole numbers'),
    ('gp --shots 1,,5', 'shots must be positive whole numbers'), ('gp --batch some', '--batch', WHOLE),
    ('gp --batch 0', 'batch and size must be at least 1'), ('gp --repeats few', '--repeats', WHOLE),
    ('gp --repeats 0', 'repeats, batch and size must be at least 1'), ('episode --size 0', 'size must be at least 1'),
    ('episode --size x', '--size', WHOLE), ('episode --backbone vgg16', "'vgg16'", 'choose one of'),
    ('cache --width w', '--width', WHOLE), ('scale --backbone vgg16', "'vgg16'", 'choose one of'),
    ('gp --device abacus', 'device must be cpu or cuda'), ('data --dataset imagenet', "'imagenet'", 'choose one of'),
    ('data --dataset pascal', 'pascal needs root'), ('data --dataset pascal --root gone', 'gone is not a folder'),
    ('data --workers none', 'workers must be positive whole numbers'), ('gp --alone=x', '--alone', 'ignored explicit'),
    ('episode --compiled=x', '--compiled', 'ignored explicit'), ('gp --colour red', 'unrecognized arguments')):
    option('deepgp_bench', words or 'nothing at all', lambda at, words=words: run('deepgp_bench', *words.split()),
           *says)


def no_gpu(at):
    with patch('torch.cuda.is_available', return_value=False): run('deepgp_bench', 'gp', '--device', 'cuda')
option('deepgp_bench', 'gp --device cuda without a GPU', no_gpu, 'use --device cpu')


option('deepgp_bench', 'cache --width 0',
       lambda at: before(bench_data, 'bench_cache', lambda: run('deepgp_bench', 'cache', '--width', 0)), 'width')
option('deepgp_bench', 'gp --json_file in a folder that is a file',
       lambda at: before(bench, 'bench_gp',
                         lambda: run('deepgp_bench', 'gp', '--json_file', write(at/'file', b'')/'answer.json')),
       'file', '--json_file')
