"Options of `deepgp_eval`"
from deepgp_fss import evaluation

from ..case import NUMBER, WHOLE, before, option, run
from ..material import EVALUATE, backbone, evaluate
from ..pictures import write

for words, *says in (
    ('--learner oracle', '--learner', 'invalid choice'), ('--learner gp', 'Name trained models, or a --learner'),
    ('--backbone resnet18', '--backbone', '--learner'), ('--weights gone.pth', '--weights', '--learner'),
    ('--levels 1', '--levels', '--learner'), ('--levels some', '--levels', WHOLE), ('--download now', 'now'),
    ('--shots', '--shots', 'expected at least one argument'), ('--shots few', '--shots', WHOLE),
    ('--shots 0', 'shots must be at least 1'), ('--shots 500', '500 shot(s)', 'Use fewer shots'),
    ('--episodes some', '--episodes', WHOLE), ('--episodes -1', 'episodes must be at least 1'),
    ('--seed lucky', '--seed', WHOLE), ('--seed -1', 'seed'), ('--size big', '--size', WHOLE), ('--size 0', 'size'),
    ('--size -5', 'size must be at least 1'), ('--queries q', '--queries', WHOLE),
    ('--queries 0', 'queries must be at least 1'), ('--queries 500', '500 query', 'Use fewer shots'),
    ('--list', '--list', 'expected one argument'), ('--table photographs', "no table 'photographs'"),
    ('--format word', '--format', 'invalid choice'), ('--workers w', '--workers', WHOLE), ('--workers -1', 'workers'),
    ('--cpu=2', '--cpu', 'ignored explicit argument'), ('--plain=yes', '--plain', 'ignored explicit argument'),
    ('--cache=yes', '--cache', 'ignored explicit argument'), ('--cache_limit much', '--cache_limit', NUMBER),
    ('--cache --cache_limit -1', '--cache_limit'), ('--dataset imagenet', "'imagenet'", 'choose one of'),
    ('--dataset pascal --root gone --data', 'gone is not a folder'), ('--fold 7', 'fold must be from 0 to 3'),
    ('--fold x', '--fold', WHOLE), ('--data n_val', '--data takes NAME=VALUE'), ('--data n_val=many', 'n_val'),
    ('--colour red', 'unrecognized arguments: --colour')):
    option('deepgp_eval', words, lambda at, words=words: evaluate(at, *words.split()), *says)
option('deepgp_eval', 'neither a model nor a --learner', lambda at: run('deepgp_eval', *EVALUATE, '--out', at/'out'),
       'there is nothing to evaluate', 'Name trained models')
option('deepgp_eval', '--episodes 0', lambda at: before(evaluation, 'evaluate', lambda: evaluate(at, '--episodes', 0)),
       'episodes must be at least 1')
option('deepgp_eval', '--out, a file', lambda at: evaluate(at, '--out', write(at/'file', b'')), 'file', '--out')
option('deepgp_eval', '--write_list into a file that is a folder', lambda at: evaluate(at, '--write_list', at),
       '--write_list')
option('deepgp_eval', '--plot into a folder that is a file', lambda at: evaluate(at, '--plot', write(at/'file', b'')),
       'file', '--plot')
option('deepgp_eval', '--cache_dir, a file', lambda at: evaluate(at, '--cache', '--cache_dir', write(at/'file', b'')),
       'cannot be written', '--cache_dir')


def untrained(at, *words):
    return run('deepgp_eval', '--learner', 'gp', '--backbone', 'resnet18', *EVALUATE, '--out', at/'out', *words)
option('deepgp_eval', '--learner gp without --weights', lambda at: untrained(at), '--weights FILE')
option('deepgp_eval', '--learner gp --learner_options 5',
       lambda at: untrained(at, '--weights', 'imagenet', '--learner_options', 5), '--learner_options takes NAME=VALUE')
option('deepgp_eval', '--learner gp --weights of a file that is not there',
       lambda at: untrained(at, '--weights', at/'gone.pth'), 'gone.pth')
option('deepgp_eval', '--learner gp --backbone vgg16',
       lambda at: untrained(at, '--weights', backbone(), '--backbone', 'vgg16'), "'vgg16'", 'choose one of')
for levels in (0, -1, 9): option('deepgp_eval', f'--learner gp --levels {levels}', lambda at,
                                 levels=levels: untrained(at, '--weights', backbone(), '--levels', levels), 'levels')
