"Folders of photographs: what is written, what is not written over, and what is left after Ctrl-C"
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepgp_fss.commands import deepgp_segment
from deepgp_fss.folders import ALWAYS, KINDS, LEGEND, find_queries, find_support, output_names, palette, segment_files
from deepgp_fss.inputs import as_image
from deepgp_fss.segmenter import FewShotSegmenter
from harness import wait_for
from toys import PIXELS, damaged, make, saved, scene

BIN = Path(sys.executable).parent
ENVIRONMENT = os.environ | dict(OMP_NUM_THREADS='1', TQDM_DISABLE='1')

def run(*words):
    "Exit status of the command in this process: 0, or what it says"
    try: deepgp_segment([str(w) for w in words])
    except SystemExit as e: return e.code or 0
    except KeyboardInterrupt: return 'not caught'  # or pytest would end
    return 0


def write_support(folder, labels=(1, 2), n=2):
    folder.mkdir(parents=True)
    for i in range(n):
        image, mask = scene(i, 60, 80, labels)
        saved(folder, Image.fromarray(image), f'{i}.jpg', quality=95), saved(folder, Image.fromarray(mask), f'{i}.png')


@pytest.fixture
def place(tmp_path):
    "known/: two photographs with masks of two classes; new/: photographs of several kinds"
    write_support(tmp_path/'known')
    (tmp_path/'new').mkdir()
    exif = Image.Exif()
    exif[0x112] = 6
    saved(tmp_path/'new', Image.fromarray(scene(5, 60, 80)[0]), 'a.jpg')
    saved(tmp_path/'new', Image.fromarray(scene(6, 50, 31)[0]), 'b.png')
    saved(tmp_path/'new', Image.fromarray(scene(7, 40, 70)[0]), 'turned.JPG', format='JPEG', exif=exif)
    saved(tmp_path/'new', Image.fromarray(scene(8, 33, 20)[0][..., 0].astype(np.uint16)*257), 'deep.png')
    return tmp_path


SHAPES = dict(a=(60, 80), b=(50, 31), turned=(70, 40), deep=(33, 20))


def content(folder): return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob('*') if p.is_file()}
def words_of(place, *more):
    model = () if {'--model', '--weights'} & set(more) else ('--model', 'shapes')
    return '--support', place/'known', '--query', place/'new', '--out', place/'out', *model, *more
def summary_of(place): return json.loads((place/'out/summary.json').read_text())


def test_every_photograph_gets_its_results(place, capsys):
    before = content(place)
    assert run(*words_of(place)) == 0 and '4 of 4' in capsys.readouterr().out
    after = content(place)
    assert {k: v for k, v in after.items() if not k.startswith('out/')} == before
    results = {f'out/{kind}/{name}{end}' for kind, end in KINDS.items() for name in SHAPES}
    assert after.keys() - before.keys() == results | {f'out/{name}' for name in ALWAYS}
    segmenter = FewShotSegmenter.from_pretrained('shapes').fit(*zip(*find_support(place/'known')))
    for file in find_queries([place/'new']):
        out, size = segmenter.predict(file), SHAPES[file.stem]
        files = (place/f'out/{kind}/{file.stem}{end}' for kind, end in KINDS.items())
        mask, overlay, doubt, variance = map(Image.open, files)
        assert mask.size == variance.size == overlay.size == size[::-1]
        assert doubt.size == (max(190, size[1]), size[0] + LEGEND)
        brightness = np.array(doubt)[:size[0], :size[1]].sum(-1).ravel()  # grows with the chance to be wrong
        assert np.corrcoef(brightness, out.uncertainty.ravel())[0, 1] > .9
        assert mask.mode == 'P' and set(np.unique(mask)) <= {0, 1, 2}
        assert np.array_equal(mask, out.mask) and np.abs(np.array(variance) - 255*out.variance).max() <= .51
        assert np.array_equal(mask.convert('RGB'), palette()[out.mask])
        assert np.abs(np.array(overlay).astype(int) - as_image(file))[out.mask == 0].mean() < 20


def test_the_default_asks_the_support_and_warns(place, capsys):
    "Generated scenes are unlike photographs"
    assert run('--support', place/'known', '--query', place/'new/a.jpg', '--out', place/'out', '--cpu') == 0
    said, summary = capsys.readouterr(), summary_of(place)
    assert summary['model'] == 'photographs' and 'find each other with IoU' in summary['choice']
    assert summary['choice'] in said.out.splitlines()
    assert said.err.count('deepgp_segment: These images look unlike those') == 1 and 'UnlikeTraining' not in said.err


def test_what_the_summary_says(place):
    (place/'new/c_broken.jpg').write_text('no image')
    assert '1 file(s)' in run(*words_of(place, '--classes', 'cat', 'dog'))
    summary = summary_of(place)
    about = dict(finished=True, shots=2, labels=[1, 2], model='shapes', classes={'1': 'cat', '2': 'dog'})
    assert {k: summary[k] for k in about} == about
    assert summary['support'] == [str(place/f'known/{i}.jpg') for i in range(2)]
    rows = {Path(row['file']).name: row for row in summary['images']}
    assert list(rows) == sorted(rows) == ['a.jpg', 'b.png', 'c_broken.jpg', 'deep.png', 'turned.JPG']
    assert str(place/'new/c_broken.jpg') in rows['c_broken.jpg']['error']
    for row in (r for r in rows.values() if 'error' not in r):
        mask, variance = (np.array(Image.open(place/f'out/{k}/{row["result"]}.png')) for k in ('masks', 'variance'))
        assert (row['height'], row['width']) == mask.shape == SHAPES[row['result']]
        assert set(row['found']) == {'cat', 'dog'}
        assert list(row['found'].values()) == pytest.approx([(mask == c).mean() for c in (1, 2)], abs=1e-6)
        assert row['variance'] == pytest.approx(variance.mean()/255, abs=2e-3)


@pytest.mark.parametrize('batch', [1, 3])
def test_bad_files_are_reported_and_passed_over(place, batch, capsys):
    bad = damaged(place/'new')
    assert f'{len(bad)} file(s) could not be segmented' in run(*words_of(place, '--batch', batch))
    said = capsys.readouterr()
    assert f'4 of {4 + len(bad)}' in said.out and all(str(place/'new'/name) in said.err for name in bad)
    assert {p.stem for p in (place/'out/masks').iterdir()} == set(SHAPES) and summary_of(place)['finished']
    assert {Path(r['file']).name for r in summary_of(place)['images'] if 'error' in r} == set(bad)


def test_photographs_with_damaged_exif_data_are_segmented(place):
    saved(place/'new', Image.fromarray(PIXELS), 'a_exif.png', exif=b'garbage')
    assert run(*words_of(place)) == 0 and {p.stem for p in (place/'out/masks').iterdir()} == {'a_exif', *SHAPES}


def test_batches_change_nothing(place):
    for batch in (1, 3): assert run(*words_of(place, '--batch', batch, '--out', place/f'out{batch}')) == 0
    for name in SHAPES:
        one, three = (np.array(Image.open(place/f'out{n}/masks/{name}.png')) for n in (1, 3))
        assert (one == three).mean() > .99
    a, b = (json.loads((place/f'out{n}/summary.json').read_text())['images'] for n in (1, 3))
    assert [r['file'] for r in a] == [r['file'] for r in b]
    assert [r['variance'] for r in a] == pytest.approx([r['variance'] for r in b], abs=1e-4)


def test_nothing_is_overwritten_unless_forced(place):
    assert run(*words_of(place)) == 0
    before = content(place)
    said = run(*words_of(place, '--model', 'shapes', '--size', 64))
    assert 'exists' in said and '--force' in said and content(place) == before
    assert run(*words_of(place, '--size', 64, '--force')) == 0
    assert content(place)['out/variance/a.png'] != before['out/variance/a.png']
    assert content(place).keys() == before.keys()


@pytest.mark.parametrize('force', [[], ['--force']])
@pytest.mark.parametrize('file', ['masks/a.png', 'overlays/a.jpg', 'uncertainty/a.png', 'variance/a.png',
                                  'summary.json', 'index.html'])
def test_files_that_no_run_wrote_are_never_overwritten(place, file, force):
    (place/'out'/file).parent.mkdir(parents=True)
    (place/'out'/file).write_text('{"mine": 1}')
    before = content(place)
    said = run(*words_of(place, *force))
    assert str(place/'out'/file) in said and 'no run wrote' in said and '\n' not in said and content(place) == before


@pytest.mark.parametrize('mine', ['1', '[]', '{"finished": true, "images": 3}', '{"finished": true, "images": [4]}',
                                  '{"finished": 1, "images": [], "results": [[]]}', '\0'])
def test_a_summary_of_another_program_is_not_ours(place, mine):
    (place/'out').mkdir()
    (place/'out/summary.json').write_text(mine)
    assert 'no run wrote' in run(*words_of(place, '--force')) and (place/'out/summary.json').read_text() == mine


def test_force_beside_files_of_the_user(place):
    "They are named, with those of a run among them; what a run does not touch does not matter"
    assert run(*words_of(place)) == 0
    for name in 'c', 'd': saved(place/'new', Image.fromarray(PIXELS), f'{name}.png')
    (place/'out/masks/c.png').write_text('mine'), (place/'out/masks/mine.png').write_text('mine')
    before = content(place)
    said = run(*words_of(place, '--force'))
    assert 'masks/c.png exists' in said and '1 file(s)' in said and content(place) == before
    (place/'out/masks/c.png').unlink()
    assert run(*words_of(place, '--force')) == 0 and (place/'out/masks/mine.png').read_text() == 'mine'


def test_what_earlier_runs_wrote_stays_theirs(place):
    "Three runs in one folder, of other photographs each time; and a summary from before they said what they write"
    for query in 'a.jpg', 'b.png', 'a.jpg':
        words = '--support', place/'known', '--query', place/'new'/query, '--out', place/'out', '--force'
        assert run(*words) == 0
    assert summary_of(place)['results'] == ['a', 'b']
    summary = {k: v for k, v in summary_of(place).items() if k != 'results'}
    (place/'out/summary.json').write_text(json.dumps(summary))
    assert run(*words) == 0 and summary_of(place)['results'] == ['a']


def test_a_killed_run_can_be_done_again(place, monkeypatch):
    "Its files are its own even if it could not say how far it came"
    save, calls = Image.Image.save, []
    class Killed(BaseException): pass
    def kill(self, file, **how):
        calls.append(file)
        if len(calls) == 5: raise Killed
        save(self, file, **how)
    monkeypatch.setattr(Image.Image, 'save', kill)
    with pytest.raises(Killed): run(*words_of(place))
    assert not summary_of(place)['finished'] and len(list((place/'out').rglob('*.png'))) == 3
    assert '--force' in run(*words_of(place)) and run(*words_of(place, '--force')) == 0
    assert summary_of(place)['finished']


def test_results_beside_photographs_but_not_among_them(place):
    "A photograph that is given by its name lies in a folder that was not given: only that very folder is refused"
    words = '--support', place/'known', '--query', place/'new/a.jpg', '--out'
    (place/'new/masks').mkdir()
    for out in place/'new', place/'new/../new', place/'known', place/'known/sub':
        for force in [], ['--force']: assert 'choose another --out' in run(*words, out, *force)
    saved(place/'new/masks', Image.fromarray(PIXELS), 'mine.png')
    mine = '--support', place/'known', '--query', place/'new/masks/mine.png', '--out', place/'new'
    assert 'choose another --out' in run(*mine)  # its masks/ would be the photograph's folder
    assert run(*words, place/'new/found') == 0


def test_names_that_come_twice(place):
    (place/'more').mkdir()
    for name in ('a.png', 'b.bmp', 'A.png'): saved(place/'more', Image.fromarray(scene(9, 20, 30)[0]), name)
    queries = place/'new', place/'more', place/'new/a.jpg'
    assert run('--support', place/'known', '--query', *queries, '--out', place/'out') == 0
    rows = {r['result']: r['file'] for r in summary_of(place)['images']}
    names = {'a_1', 'a_2', 'a_3', 'b_1', 'b_2', 'A', 'deep', 'turned'}
    assert set(rows) == {p.stem for p in (place/'out/masks').iterdir()} == names
    for name, file in rows.items(): assert Image.open(place/f'out/masks/{name}.png').size == as_image(file).shape[1::-1]
    assert rows['a_1'] == rows['a_3'] == str(place/'new/a.jpg') and rows['a_2'] == str(place/'more/a.png')


def test_names_with_numbers_are_all_different():
    for queries in (['x/a.png', 'y/a.png', 'a_1.png'], ['a_2.png', 'x/a.png', 'y/a.jpg'],
                    ['a_1.png', 'a_1.jpg', 'a_1_1.png']):
        assert len(set(output_names([Path(q) for q in queries]))) == 3


def test_long_names_do_not_stop_the_others(place):
    saved(place/'new', Image.fromarray(PIXELS), f'a{"b"*246}.png')
    run(*words_of(place))
    assert {p.stem for p in (place/'out/masks').iterdir()} >= set(SHAPES) and summary_of(place)['finished']


def test_results_stay_in_their_folder(place):
    names = ['..evil.png', '...png', 'a b\tc.png', '%s{0}.png', 'größe.png', '-force.png', "q'$(touch x).png"]
    (place/'odd').mkdir()
    for name in names: saved(place/'odd', Image.fromarray(PIXELS), name, format='PNG')
    (place/'odd/.hidden.png').write_text('not looked at')
    before = content(place)
    queries = place/'odd/../odd/..evil.png', place/'odd', *(place/'odd'/n for n in names if n[0] == '.')
    assert run('--support', place/'known', '--query', *queries, '--out', place/'deep/er/out') == 0
    after = content(place)
    assert {k: v for k, v in after.items() if not k.startswith('deep/er/out/')} == before
    rows = json.loads(after['deep/er/out/summary.json'])['images']
    masks = [k for k in after if k.startswith('deep/er/out/masks/')]
    assert len(masks) == len(rows) == 8 and all('result' in r for r in rows)


def test_support_in_two_folders(place):
    for kind, end in (('images', 'jpg'), ('masks', 'png')):
        (place/'two'/kind).mkdir(parents=True)
        for i in range(2): (place/f'two/{kind}/{i}.{end}').write_bytes((place/f'known/{i}.{end}').read_bytes())
    for kind, x in zip(('images', 'masks'), scene(3)):
        saved(place/'two'/kind, Image.fromarray(x), 'p.png')  # photographs may be PNG here
    names = [(image.name, mask.name) for image, mask in find_support(place/'two')]
    assert names == [('0.jpg', '0.png'), ('1.jpg', '1.png'), ('p.png', 'p.png')]
    assert run('--support', place/'two', '--query', place/'new/a.jpg', '--out', place/'out') == 0
    assert summary_of(place)['shots'] == 3


def test_what_a_user_can_fix_is_said_in_one_sentence(place):
    (place/'empty').mkdir(), (place/'file').write_text('')
    write_support(place/'blank', n=1), write_support(place/'alone', n=2), write_support(place/'other', n=1)
    saved(place/'blank', Image.fromarray(np.zeros((60, 80), np.uint8)), '0.png')
    (place/'alone/1.png').unlink()
    saved(place/'other', Image.fromarray(np.ones((50, 80), np.uint8)), '0.png')
    base = dict(support=place/'known', query=place/'new', out=place/'out')
    wrong = [(dict(support=place/'no'), 'no is not a folder'), (dict(support=place/'empty'), 'holds no photographs'),
             (dict(support=place/'alone'), '1.jpg', 'no mask'), (dict(support=place/'blank'), 'is empty'),
             (dict(support=place/'other'), '0.png', '80x50'), (dict(query=place/'no'), 'does not exist'),
             (dict(query=place/'empty'), 'no images'), (dict(out=place/'file/out'), 'cannot be written'),
             (dict(model='nothing'), 'nothing'), (dict(size=8), 'at least 32'),
             (dict(batch=0), 'batch must be at least 1'), (dict(model='shapes', weights='x.pth'), 'not both'),
             (dict(weights=place/'none.pth', backbone='resnet18'), 'none.pth')]
    for change, *says in wrong:
        said = run(*(w for k, v in (base | change).items() for w in (f'--{k}', v)))
        assert isinstance(said, str) and said.startswith('deepgp_segment: ') and '\n' not in said, said
        assert all(w in said for w in says), said
    assert not (place/'out/summary.json').exists() and run('--support', place/'known') == 2  # argparse's own


def test_a_backbone_without_training(place, backbone):
    assert run(*words_of(place, '--weights', backbone, '--backbone', 'resnet18', '--size', 64)) == 0
    assert summary_of(place)['model'] == str(backbone)
    for name, size in SHAPES.items(): assert Image.open(place/f'out/masks/{name}.png').size == size[::-1]


def test_learners_without_variance_write_none(place):
    segmenter = make('prototype').fit(*zip(*find_support(place/'known')))
    summary = segment_files(segmenter, find_queries([place/'new']), place/'out', progress=False)
    assert not (place/'out/variance').exists() and len(list((place/'out/masks').iterdir())) == 4
    assert {r['variance'] for r in summary['images']} == {None}
    assert set(summary['images'][0]['found']) == {'1', '2'}


@pytest.mark.parametrize('at', [1, 2, 5, 9])
def test_interrupted_while_writing(place, monkeypatch, at, capsys):
    "Ctrl-C with half a file written"
    save, calls = Image.Image.save, []
    def cut(self, file, **how):
        calls.append(file)
        save(self, file, **how)
        if len(calls) == at: Path(file).write_bytes(Path(file).read_bytes()[:40]); raise KeyboardInterrupt
    monkeypatch.setattr(Image.Image, 'save', cut)
    assert run(*words_of(place)) == 130 and 'interrupted' in capsys.readouterr().err
    summary = summary_of(place)
    files = [p for p in (place/'out').rglob('*') if p.is_file() and p.name not in ALWAYS]
    assert not summary['finished'] and len(files) == at - 1 and len(summary['images']) == (at - 1)//4
    for p in files: Image.open(p).load()


def test_a_process_that_is_interrupted_leaves_whole_files(place):
    "SIGINT in the middle of 404 photographs, and again with --force"
    photograph = (place/'new/a.jpg').read_bytes()
    for i in range(400): (place/f'new/q{i:03}.jpg').write_bytes(photograph)
    process = subprocess.Popen(
        [BIN/'deepgp_segment', *words_of(place)], env=ENVIRONMENT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a test run in the background ignores it
    wait_for(process, lambda: len(list((place/'out').glob('masks/*.png'))) >= 7, 'seven masks were written')
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=900)
    assert process.returncode == 130 and 'interrupted' in err and 'Traceback' not in err, err
    files = [p for p in (place/'out').rglob('*') if p.is_file()]
    for p in files:
        if p.suffix not in ('.json', '.html'): Image.open(p).load()
    done, summary = {p.stem for p in (place/'out/masks').iterdir()}, summary_of(place)
    assert 7 <= len(done) < 404 and not summary['finished'] and {r['result'] for r in summary['images']} <= done
    assert len(done) - len(summary['images']) <= 1
    assert not [p for p in files if p.name.startswith('.') or p.suffix == '.part']
    for p in (place/'new').glob('q*'): p.unlink()
    assert '--force' in run(*words_of(place))
    assert run(*words_of(place, '--force')) == 0 and summary_of(place)['finished']
