"Options of `deepgp_study` and `deepgp_demo`"
from deepgp_fss import demo, evidence

from ..case import WHOLE, before, option, run
from ..material import SHOWN, backbone, voc
from ..pictures import write

for words, *says in (
    ('', 'required'), ('shapes', 'Give --out FOLDER'),
    ('poems --out out', "no study 'poems'", 'choose shapes or photographs'),
    ('shapes --out out --iterations some', '--iterations', WHOLE),
    ('shapes --out out --iterations 0', 'iterations and episodes must be at least 1'),
    ('shapes --out out --episodes x', '--episodes', WHOLE),
    ('shapes --out out --episodes -1', 'iterations and episodes must be at least 1'),
    ('shapes --out out --jobs all', '--jobs', WHOLE), ('shapes --out out --jobs -1', 'jobs must be at least 1'),
    ('shapes --out out --jobs 0', 'jobs must be at least 1'),
    ('shapes --out out --tables=x', '--tables', 'ignored explicit'),
    ('photographs --out out', 'photographs needs --root', '--weights'),
    ('photographs --out out --root {voc}', 'photographs needs --root', '--weights'),
    ('photographs --out out --root gone --weights {weights}', 'gone is not a folder'),
    ('photographs --out out --root {voc} --weights gone.pth', 'gone.pth'), ('shapes --out file', 'file', '--out'),
    ('photographs --out out --root {voc} --weights {weights} --cache_dir file', 'file', '--cache_dir'),
    ('shapes --out out --root {voc}', '--root', 'photographs')):
    def do(at, words=words):
        write(at/'file', b'')
        before(evidence, 'start_run', lambda: run('deepgp_study', *words.format(voc=voc(), weights=backbone()).split()))
    option('deepgp_study', words.format(**SHOWN) or 'nothing at all', do, *says)


for words, *says in (
    ('--steps many', '--steps', WHOLE), ('--steps 0', 'steps and episodes must be at least 1'),
    ('--episodes some', '--episodes', WHOLE), ('--episodes 0', 'steps and episodes must be at least 1'),
    ('--out file', 'file', '--out'), ('--fold 1', 'unrecognized arguments: --fold')):
    def do(at, words=words):
        write(at/'file', b'')
        before(demo, 'train', lambda: run('deepgp_demo', *words.split()))
    option('deepgp_demo', words, do, *says)
