"Options of `deepgp_data`"
from ..case import WHOLE, option, run
from ..material import SHOWN, built_coco, coco, copied, folder, voc
from ..pictures import write


def with_folders(words):
    "The words of a command with folders put in; COCO is built only where it is asked for"
    return words.format(voc=voc(), coco=coco(), built=built_coco() if '{built}' in words else '', folder=folder())

for words, *says in (
    ('', 'required'), ('paint shapes', "no job 'paint'", 'choose build, check or info'),
    ('check pascal', 'pascal needs the folder', 'FOLDER'),
    ('check imagenet .', "'imagenet'", 'choose shapes, pascal, coco or folder'),
    ('build shapes', 'nothing to build', 'choose pascal or coco'),
    ('build folder .', 'nothing to build', 'choose pascal or coco'), ('build pascal {voc}', '--sbd FOLDER'),
    ('build coco {coco} --masks thin', "'full' or 'compat'"), ('check coco {built} --masks thin', "'full' or 'compat'"),
    ('check coco {built} --split odd', "'interleaved'", "'contiguous'"),
    ('check pascal {voc} --train_list all', 'all cannot be read'),
    ('check pascal {voc} --workers some', '--workers', WHOLE), ('check pascal {voc} --workers -1', 'workers'),
    ('check pascal {voc} --workers 0', 'workers'), ('check pascal {voc}', 'complete set'),
    ('check pascal {voc} --part=x', '--part', 'ignored explicit'),
    ('info folder {folder} --min_area big', '--min_area', WHOLE),
    ('info folder {folder} --min_area 0', 'min_area must be at least 1'),
    ('info folder {folder} --min_area -1', 'min_area must be at least 1'),
    ('info folder {folder} --min_area 99999', 'lower min_area'),
    ('check folder {folder} --foreground cat', 'foreground takes numbers', "'cat'"),
    ('check folder {folder} --ignore 256', 'ignore takes numbers'),
    ('check folder {folder} --threshold soft', 'threshold must be a number'),
    ('check folder {folder} --foreground 200', 'has label maps', 'classes.txt'),
    ('check pascal {voc} --foreground 1', 'not for pascal'),
    ('info folder {folder} --colour red', 'unrecognized arguments: --colour')):
    option('deepgp_data', words.format(**SHOWN) or 'nothing at all',
           lambda at, words=words: run('deepgp_data', *with_folders(words).split()), *says)
option('deepgp_data', 'info with --out, a file',
       lambda at: run('deepgp_data', 'info', 'folder', copied(folder(), at/'data'), '--min_area', 50,
                      '--out', write(at/'file', b'')),
       'file', '--out')
option('deepgp_data', 'build pascal with --sbd that is VOC',
       lambda at: run('deepgp_data', 'build', 'pascal', voc(), '--sbd', voc()), 'does not look like SBD')
