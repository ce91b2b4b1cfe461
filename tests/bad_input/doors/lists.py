"Lists of images, names of classes, lists of episodes"
from pathlib import Path

from deepgp_fss.datasets import folder_set, open_data

from ..case import refused, works
from ..material import NAMES, changed_folder, check, copied, evaluate, evaluate_on, folder, held, train_on, voc
from ..pictures import JPEG, becomes, write


def listed(content):
    "Look at the images of PASCAL that a list names"
    return lambda at: check('pascal', voc(), '--train_list', write(at/'list.txt', content))


for name, do, *says in (
    ('a list that is not there', lambda at: check('pascal', voc(), '--train_list', at/'gone.txt'),
     'gone.txt cannot be read', 'No such file'),
    ('a folder instead of a list', lambda at: check('pascal', voc(), '--train_list', at), 'cannot be read',
     'Is a directory'),
    ('a list that is a link to itself',
     lambda at: ((at/'list.txt').symlink_to('list.txt'), check('pascal', voc(), '--train_list', at/'list.txt')),
     'list.txt cannot be read', 'symbolic links'),
    ('a list without names', listed('# nothing\n\n'), 'list.txt'),
    ('a list that names an image twice', listed('\n'.join(NAMES[:2]*2)), f'list.txt lists {NAMES[0]} twice'),
    ('a list in UTF-16', listed('\n'.join(NAMES).encode('utf-16')), 'list.txt is not text in UTF-8'),
    ('a photograph as list', listed(JPEG), 'list.txt is not text in UTF-8'),
    ('a list that names an image that is not there', listed('2007_999999\n'), '2007_999999.jpg does not exist'),
    ('a list that climbs out of the root', listed('../../../../etc/passwd\n'), 'JPEGImages/passwd.jpg does not exist'),
    ('a list with an absolute path', listed('/etc/hostname.conf\n'), 'JPEGImages/hostname.jpg does not exist'),
    ('a list with a name of 300 letters', listed('a'*300 + '\n'), 'aaa.jpg')):
    refused('list', name, do, *says)
for name, text, *says in (('a list that names an image that is not there, in training', '2007_999999', '2007_999999'),
                          ('a list with a zero byte in a name, in training', '2007_\0000001', 'list.txt')):
    refused('list', name,
            lambda at, text=text: train_on(at, 'pascal', voc(), f'train_list={write(at/"list.txt", text)}'), *says)


def lists_alike(content):
    def do(at):
        root = copied(voc(), at/'voc')
        images = open_data('pascal', root, train_list=str(write(at/'list.txt', content)), min_area=50).train.images
        assert [item.name for item in images.items] == NAMES
        assert all(item.image.parent == root/'JPEGImages' for item in images.items)
    return do


for name, content in (
    ('a list that begins with a byte order mark', b'\xef\xbb\xbf' + '\n'.join(NAMES).encode()),
    ('a list with line ends of Windows', '\r\n'.join(NAMES).encode() + b'\r\n'),
    ('a list with line ends of old Macs', '\r'.join(NAMES).encode()),
    ('a list with blank lines, blanks and comments', ('# mine\n\n' + '\n\n'.join(f'  {n}\t ' for n in NAMES)).encode()),
    ('a list of pairs of paths, as PFENet has',
     '\n'.join(f'JPEGImages/{n}.jpg SegmentationClassAug/{n}.png' for n in NAMES).encode()),
    ('a list of paths that climb out of the root', '\n'.join(f'../../elsewhere/{n}.jpg' for n in NAMES).encode())):
    works('list', name, 'the same images, and none outside of the root', lists_alike(content))


def classes(content): return lambda at: check('folder', changed_folder(at, lambda d: write(d/'classes.txt', content)))
for name, do, *says in (
    ('names of classes, one of them twice', classes('one\ntwo\none\nfour\n'), 'classes.txt lists one twice'),
    ('names of classes without any', classes(''), 'classes.txt names nothing', 'a name on each line'),
    ('names of classes numbered from 0', classes('0 none\n1 one\n2 two\n3 three\n'),
     'classes.txt must number its classes 1, 2, 3'),
    ('names of classes with a number left out', classes('1 one\n2 two\n4 four\n'),
     'classes.txt must number its classes 1, 2, 3'),
    ('two classes with the same number', classes('1 one\n1 two\n'), 'classes.txt must number its classes 1, 2, 3'),
    ('names of classes in Latin-1', classes('Käse\nBär\nÖl\nFuß\n'.encode('latin-1')),
     'classes.txt is not text in UTF-8'),
    ('300 names of classes', classes('\n'.join(f'class{i}' for i in range(300))), 'classes.txt names 300 classes',
     'from 1 to 254'),
    ('300 names of classes with numbers', classes('\n'.join(f'{i} class{i}' for i in range(1, 301))), 'classes.txt',
     '300', 'from 1 to 254'),
    ('a folder called classes.txt',
     lambda at: check('folder', changed_folder(at, lambda d: becomes(d/'classes.txt', Path.mkdir))),
     'classes.txt cannot be read', 'Is a directory'),
    ('a held-out class that does not exist', lambda at: train_on(at, 'folder', folder(), held(at, 'five')),
     "no class 'five'", 'it has one, two, three, four'),
    ('a list of held-out classes that is not there',
     lambda at: train_on(at, 'folder', folder(), 'test_classes=gone.txt'), 'gone.txt cannot be read'),
    ('a list of held-out classes that is empty', lambda at: train_on(at, 'folder', folder(), held(at, '')), 'held.txt'),
    ('all classes held out', lambda at: train_on(at, 'folder', folder(), held(at, 'one\ntwo\nthree\nfour')),
     'hold other classes out')):
    refused('classes', name, do, *says)


def named(content):
    def do(at):
        root = changed_folder(at, lambda d: write(d/'classes.txt', content))
        assert folder_set(root).classes == ('one', 'two', 'three', 'four')
    return do
works('classes', 'names of classes from Windows, with a byte order mark', 'the same classes',
      named('\ufeff1 one\r\n2 two\r\n3 three\r\n4 four\r\n'))


def tabbed(at):
    root = changed_folder(at, lambda d: write(d/'classes.txt', ''.join(f'{i} the\tclass{i}\n' for i in range(1, 5))))
    evaluate_on(at, 'folder', root, more=('--write_list', at/'list.tsv'))
    evaluate_on(at, 'folder', root, more=('--list', at/'list.tsv'))
works('classes', 'names of classes with a tab in them', 'a list of episodes that was written can be read', tabbed)


# ---- lists of episodes

def episodes(change, *more):
    "Evaluate with a changed list of episodes"
    def do(at):
        evaluate(at, '--write_list', at/'list.tsv')
        content = change((at/'list.tsv').read_text())
        evaluate(at, '--list', write(at/'list.tsv', content), *more)
    return do


def second(change):
    "Change the words of the second line of a list: of its first episode"
    def do(text):
        lines = text.splitlines()
        lines[1] = '\t'.join(change(lines[1].split('\t')))
        return '\n'.join(lines) + '\n'
    return do
for name, do, *says in (
    ('a list that is not there', lambda at: evaluate(at, '--list', at/'gone.tsv'), 'gone.tsv cannot be read',
     'No such file'),
    ('an empty list', episodes(lambda t: ''), 'list.tsv', '# deepgp_fss episodes 1'),
    ('a list without its first line', episodes(lambda t: t.partition('\n')[2]), 'list.tsv does not begin with',
     '# deepgp_fss episodes 1'),
    ('a list of no episodes', episodes(lambda t: t.partition('\n')[0] + '\n'), 'list.tsv'),
    ('a list in UTF-16', episodes(lambda t: t.encode('utf-16')), 'list.tsv cannot be read'),
    ('an image that is not in the data set', episodes(second(lambda w: [w[0], 'val/9999', *w[2:]])), 'list.tsv, line 2',
     "'val/9999' is not in"),
    ('a path that climbs out of the data set', episodes(second(lambda w: [w[0], '../../../etc/passwd', *w[2:]])),
     'list.tsv, line 2', "'../../../etc/passwd' is not in"),
    ('a class that does not exist', episodes(second(lambda w: ['granite', *w[1:]])), 'list.tsv, line 2',
     "'granite' is not in"),
    ('a class that is not held out', episodes(second(lambda w: ['turquoise', *w[1:]])), 'list.tsv, line 2',
     'turquoise'),
    ('an episode without support', episodes(second(lambda w: w[:2])), 'list.tsv, line 2', 'no support image'),
    ('episodes of different numbers of shots', episodes(second(lambda w: [*w, w[-1]])), 'list.tsv',
     'differ in their number of shots'),
    ('an episode whose query is its support', episodes(second(lambda w: [*w[:2], w[1]])), 'list.tsv, line 2', 'query'),
    ('a list of 1 shot for 3 shots', episodes(lambda t: t, '--shots', 3), 'list.tsv has episodes of 1 shot(s), not 3')):
    refused('episodes', name, do, *says)
works('episodes', 'a list from Windows, with a byte order mark', 'the episodes are evaluated',
      episodes(lambda t: ('\ufeff' + t.replace('\n', '\r\n')).encode()))
