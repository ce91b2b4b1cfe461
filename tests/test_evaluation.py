"""An evaluation says what was evaluated: other data, other options, fewer episodes, a restart; and what may stand
beside the paper's numbers"""
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from deepgp_fss import evaluation
from deepgp_fss.commands import EPISODES, deepgp_eval
from deepgp_fss.datasets import KNOWN, MIN_AREA, open_data
from deepgp_fss.episodes import DRAWS, Draw, Episodes, draw_episode
from deepgp_fss.evaluation import (COUNTS, bootstrap, by_query, episode_mark, evaluate, evaluation_key, finish, miou,
                                   opened_data, reported_rows)
from deepgp_fss.evidence import FULL, Study, gap, gather, study_table
from deepgp_fss.base import BadFile
from deepgp_fss.model import load_checkpoint
from deepgp_fss.paper import EPISODES_OF_PAPER, NOT_MEASURED, as_text, ours_beside, trained_as
from deepgp_fss.segmenter import bundled
from deepgp_fss.training import make_config
from deepgp_fss.prepare import build_coco
from faults import label_maps
from layouts import make_coco

SHAPES = 'n_val=60 side=48'.split()


@pytest.fixture(scope='module')
def model(): return load_checkpoint(bundled('shapes'))


@pytest.fixture(scope='module')
def fold(): return open_data('shapes', n_val=60, side=48)


def some(fold, n, shots=2, **options): return Episodes(fold.test, shots, 48, train=False, length=n, **options)


def run(out, *more, data=SHAPES, episodes=3):
    "What the command reports"
    deepgp_eval([*'shapes --shots 1 --size 48 --cpu --episodes'.split(), str(episodes), '--out', str(out),
                 '--data', *map(str, data), *map(str, more)])
    return json.loads(next(Path(out).rglob('result.json')).read_text())


def on(root): return '--dataset', 'folder', '--root', root
FOLDER = 'min_area=50', 'folds=2'


# ---- other data

def test_two_folders_of_one_name_are_not_one_data_set(tmp_path):
    roots = [label_maps(tmp_path/side/'data', 24) for side in 'ab']
    result = run(tmp_path/'out', *on(roots[0]), data=FOLDER)
    assert result['opened']['root'] == str(roots[0].resolve()) and result['opened']['min_area'] == 50
    says = 'from an evaluation of something else .episode 0 was made from other files.*choose another --out'
    with pytest.raises(SystemExit, match=says):
        run(tmp_path/'out', *on(roots[1]), data=FOLDER)


def test_a_data_set_may_be_moved_but_not_changed(tmp_path):
    root, moved = label_maps(tmp_path/'here/data', 24), tmp_path/'there/data'
    first = run(tmp_path/'out', *on(root), data=FOLDER)
    moved.parent.mkdir()
    shutil.move(root, moved)
    again = run(tmp_path/'out', *on(moved), data=FOLDER)
    assert again['miou'] == first['miou'] and again['opened']['root'] == str(moved.resolve())
    for kind in ('masks', 'images'):
        for path in (moved/kind).iterdir(): os.utime(path, ns=(1, 1))
        with pytest.raises(SystemExit, match='made from other files, or they have changed since'):
            run(tmp_path/'out', *on(moved), data=FOLDER)


@pytest.mark.parametrize('option, says', [
    ('seed=7', 'seed 0.*seed 7'), ('difficulty=outline', "difficulty 'looks'.*difficulty 'outline'"),
    ('side=64', '48x48.*64x64'), ('n_val=50', '60 images.*50 images'),
    ('min_area=20', 'min_area is 36 there and 20 now')])
def test_other_options_of_the_data_are_refused_and_named(tmp_path, capsys, option, says):
    run(tmp_path/'out')
    assert "data: Shapes-5^i, val: 60 images of 48x48, seed 0, difficulty 'looks'; " in capsys.readouterr().out
    with pytest.raises(SystemExit, match=f'something else .*{says}'): run(tmp_path/'out', data=[*SHAPES, option])


@pytest.mark.parametrize('more, says', [
    (['--size', '64'], 'size is 48 there and 64 now'), (['--queries', '2'], 'queries is 1 there and 2 now'),
    (['--cache'], "features is 'computed' there and 'kept' now")])
def test_other_questions_are_refused_and_named(tmp_path, monkeypatch, more, says):
    monkeypatch.setenv('DEEPGP_FSS_CACHE', str(tmp_path/'cache'))
    run(tmp_path/'out')
    with pytest.raises(SystemExit, match=f'something else .{says}'): run(tmp_path/'out', *more)


def test_the_content_of_a_list_counts_not_its_name(tmp_path):
    path, other = tmp_path/'list.txt', tmp_path/'other.txt'
    deepgp_eval(['shapes', '--shots', '1', '--episodes', '8', '--cpu', '--data', *SHAPES, '--write_list', str(path)])
    first = run(tmp_path/'out', '--list', path)
    other.write_text(path.read_text())
    assert run(tmp_path/'out', '--list', other)['miou'] == first['miou']
    lines = path.read_text().splitlines()
    path.write_text('\n'.join([lines[0], *lines[4:7]]) + '\n')
    with pytest.raises(SystemExit, match='something else .list is'): run(tmp_path/'out', '--list', path)
    with pytest.raises(SystemExit, match='has 3 episode.s., and --episodes asks for 8'):
        run(tmp_path/'new', '--list', path, episodes=8)


def write_list(path, *more, models=('shapes',), shots=('1',)):
    words = ['--shots', *shots, *'--episodes 3 --cpu --data'.split(), *SHAPES, '--write_list', str(path)]
    deepgp_eval([*models, *words, *more])


def test_a_list_replaces_lists_only(tmp_path):
    mine, path, empty = tmp_path/'precious.txt', tmp_path/'list.txt', tmp_path/'empty.txt'
    mine.write_text('years of work\n')
    says = 'precious.txt is there, and is not a list of episodes: choose another name for --write_list'
    with pytest.raises(SystemExit, match=says): write_list(mine)
    assert mine.read_text() == 'years of work\n'
    for _ in range(2): write_list(path)  # a list of ours makes way for another
    write_list(path, '--seed', '3')
    empty.touch()                        # as by mktemp
    write_list(empty, '--seed', '3')
    assert 'seed 3' in path.read_text() and path.read_text() == empty.read_text()
    with pytest.raises(SystemExit, match='is a folder'): write_list(tmp_path)


def test_each_number_of_shots_gets_a_list(tmp_path, capsys):
    write_list(tmp_path/'list.txt', shots=('1', '5'))
    said = capsys.readouterr().out.splitlines()
    assert said == [str(tmp_path/name) for name in ('list_1shot.txt', 'list_5shot.txt')]
    assert sorted(p.name for p in tmp_path.iterdir()) == ['list_1shot.txt', 'list_5shot.txt']
    for K in (1, 5): assert f'; {K} shot(s);' in (tmp_path/f'list_{K}shot.txt').read_text()
    (tmp_path/'new_5shot.txt').write_text('mine')
    with pytest.raises(SystemExit, match='new_5shot.txt is there'): write_list(tmp_path/'new.txt', shots=('1', '5'))
    assert not (tmp_path/'new_1shot.txt').exists()  # nothing is written if not all can be


def test_one_list_for_one_model(tmp_path):
    with pytest.raises(SystemExit, match='--write_list is for one model'):
        write_list(tmp_path/'list.txt', models=('shapes', 'runs/other'))


def test_results_of_an_older_version_are_refused_by_name(tmp_path, model, fold):
    (tmp_path/'episodes.jsonl').write_text('{"checkpoint": "x", "format": "deepgp_fss evaluation 2"}\n')
    with pytest.raises(BadFile, match="format is 'deepgp_fss evaluation 2' there and 'deepgp_fss evaluation 3' now"):
        evaluate(model, some(fold, 2), tmp_path, progress=False)


def test_every_kind_of_image_set_has_marks(tmp_path, fold):
    sets = [fold.test, open_data('folder', label_maps(tmp_path/'maps', 24), min_area=50, folds=2).test]
    for data in sets:
        marks = [episode_mark(Episodes(data, 1, 48, train=False), i) for i in range(4)]
        assert len({m['mark'] for m in marks}) == 4
        assert all(m['query'] == [data.images.name(data.queries[i])] for i, m in enumerate(marks))
        assert json.dumps(evaluation_key(Episodes(data, 1, 48, train=False), 'title', 'digest'))


# ---- fewer, more, plain

def test_fewer_episodes_after_more_are_the_first_ones(tmp_path):
    fresh = {n: run(tmp_path/f'fresh{n}', episodes=n) for n in (3, 8, 10)}
    for n in (8, 3, 10):
        result = run(tmp_path/'out', episodes=n)
        for name in ('episodes', 'miou', 'miou_interval', 'ece'): assert result[name] == fresh[n][name]
        assert len(reported_rows(next((tmp_path/'out').iterdir()))) == n
    rows = [next((tmp_path/d).iterdir())/'episodes.jsonl' for d in ('out', 'fresh10')]
    assert rows[0].read_bytes() == rows[1].read_bytes()


def test_what_is_there_is_not_computed_again(tmp_path, monkeypatch, model, fold):
    made, real = [], evaluation.judge
    monkeypatch.setattr(evaluation, 'judge', lambda *args: made.append(1) or real(*args))
    for n, plain, new in ((8, False, 8), (3, False, 0), (8, True, 0), (9, True, 1), (9, False, 1), (12, True, 3),
                          (10, False, 1)):
        made.clear()
        evaluate(model, some(fold, n), tmp_path, uncertainty=not plain, progress=False)
        rows = finish(tmp_path, None, some(fold, n), not plain)
        assert len(made) == new and [r['index'] for r in rows] == list(range(n)), (n, plain)
        assert all(('fair' in r) != plain for r in rows), (n, plain)


def test_plain_and_not_plain_share_a_folder(tmp_path):
    whole, bare = run(tmp_path/'whole'), run(tmp_path/'bare', '--plain')
    assert 'ece' in whole and 'ece' not in bare and whole['miou'] == bare['miou']
    for more, expected in ((['--plain'], bare), ([], whole), (['--plain'], bare), ([], whole)):
        assert run(tmp_path/'out', *more) == expected
        assert bool(list((tmp_path/'out').rglob('reliability.png'))) == (not more)


# ---- killed and started again

def test_a_restart_with_the_same_process_number_loses_nothing(tmp_path, monkeypatch, model, fold):
    "As in a container, in which every process is number 1"
    real, count = evaluation.judge, []
    def killed(*args):
        count.append(1)
        if len(count) in (5, 9): raise KeyboardInterrupt
        return real(*args)
    monkeypatch.setattr(evaluation, 'judge', killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt): evaluate(model, some(fold, 12), tmp_path, progress=False)
    assert len(list(tmp_path.glob('part_*'))) == 2
    rows = evaluate(model, some(fold, 12), tmp_path, progress=False)
    assert finish(tmp_path, None, some(fold, 12)) == rows and len(rows) == 12 and len(count) == 14


def test_no_report_unless_all_episodes_are_there(tmp_path, model, fold):
    evaluate(model, some(fold, 12), tmp_path, rank=1, world=3, progress=False)
    with pytest.raises(BadFile, match='lacks 8 of 12 episodes, such as 0: run the same command again'):
        finish(tmp_path, None, some(fold, 12))
    assert list(tmp_path.glob('part_*')) and not (tmp_path/'episodes.jsonl').exists()
    for rank in range(2): evaluate(model, some(fold, 12), tmp_path, rank=rank, world=2, progress=False)
    assert finish(tmp_path, None, some(fold, 12)) == evaluate(model, some(fold, 12), progress=False)


def test_a_file_that_got_no_further_than_its_first_line(tmp_path, model, fold):
    for name, content in (('a', ''), ('b', '{"format": "deep')): (tmp_path/f'part_0_{name}.jsonl').write_text(content)
    assert len(evaluate(model, some(fold, 2), tmp_path, progress=False)) == 2


# ---- draws

@pytest.mark.parametrize('queries', [1, 3])
def test_supports_of_an_evaluation_are_nested(queries):
    data = open_data('shapes', n_val=200, side=48).test
    for i in range(40):
        ten = draw_episode(data, 10, 3, i, shuffle=False, queries=queries)
        for K in range(1, 10):
            fewer = draw_episode(data, K, 3, i, shuffle=False, queries=queries)
            assert fewer == Draw(ten.label, ten.queries, ten.supports[:K])
    with pytest.raises(ValueError, match='200 shot.s. and 1 query need 201 images of a class'):
        draw_episode(data, 200, 3, 0, shuffle=False)


def test_all_supports_are_equally_likely(fold):
    n, counts = len(fold.test.queries), {}
    for k in range(600):
        draw = draw_episode(fold.test, 1, 0, k*n, shuffle=False)
        counts.setdefault(draw.label, []).append(draw.supports[0])
    for label, drawn in counts.items():
        pool = set(fold.test.lists[label].tolist()) - {int(fold.test.queries[0])}
        assert set(drawn) == pool and max(np.bincount(drawn)) < 4*len(drawn)/len(pool)


def test_training_draws_as_ever(fold):
    "Runs that continue from a checkpoint of an older version see the same episodes"
    for i in (0, 5, 777):
        rng, data, n = np.random.default_rng([3, 2, i, 0]), fold.train, len(fold.train.queries)
        query = int(data.queries[np.random.default_rng([3, 1, i//n]).permutation(n)[i % n]])
        label = int(rng.choice(data.present[query]))
        pool = data.lists[label]
        drawn = rng.choice(pool[pool != query], 5, replace=False).tolist()
        assert draw_episode(data, 5, 3, i) == Draw(label, (query,), tuple(drawn))


# ---- intervals

def test_intervals_cover_other_images():
    """Of 60 samples of 30 images with 8 episodes each, about 57 intervals hold the score of the whole population; over
    episodes it would be far fewer"""
    rng = np.random.default_rng(0)
    hits = dict(images=0, episodes=0)
    for k in range(60):
        images = rng.beta(2, 2, 30)  # how hard an image is: the same in all of its episodes
        found = [(i, np.clip(v + rng.normal(0, .02), 0, 1)) for i, v in enumerate(images) for _ in range(8)]
        rows = [dict(label=1, inter=round(1000*float(v)), union=1000, back_inter=1, back_union=2, query=[str(i)])
                for i, v in found]
        for over in hits:
            drawn = rows if over == 'images' else [r | dict(query=None) for r in rows]
            low, high = bootstrap(drawn, (1,), draws=150, seed=k)['miou']
            hits[over] += low <= .5 <= high
    assert hits['images'] >= 50 and hits['episodes'] < 42


def asked_about(queries):
    "Rows of 30 episodes, each about its own image and `queries` - 1 others; an image is as hard in each of them"
    hard, rows = np.random.default_rng(1).beta(2, 2, 30), []
    for k in range(30):
        others = np.random.default_rng(k).choice([i for i in range(30) if i != k], queries - 1, replace=False)
        each = [[round(1000*float(hard[i])), 1000, 1, 2] for i in (k, *others)]
        sums = dict(zip(COUNTS, np.sum(each, 0).tolist()))
        row = dict(index=k, label=1, query=[str(i) for i in (k, *others)], **sums)
        rows.append(row | dict(each=each) if queries > 1 else row)
    return rows


def test_more_queries_of_the_same_images_do_not_make_an_interval_narrow():
    "They tell how hard these images are more than once, and nothing about others"
    one, *more = [float(np.diff(bootstrap(asked_about(n), (1,), 400)['miou'])[0]) for n in (1, 3, 8)]
    assert .1 < one < .2 and all(.9*one < width for width in more), (one, more)
    assert asked_about(1) == by_query(asked_about(1))


def test_rows_that_do_not_tell_their_queries_apart_have_no_interval():
    sums_only = [{k: v for k, v in row.items() if k != 'each'} for row in asked_about(3)]
    with pytest.raises(ValueError, match='do not tell its 3 queries apart'): bootstrap(sums_only, (1,))


def test_rows_count_each_of_several_queries(tmp_path, model, fold):
    rows = evaluate(model, some(fold, 4, queries=3), tmp_path, progress=False)
    for row in rows:
        assert len(row['query']) == len(row['each']) == len(row['fair']['each']) == 3
        for counted in (row, row['fair']): assert np.sum(counted['each'], 0).tolist() == [counted[n] for n in COUNTS]
    single = by_query(rows)
    assert len(single) == 12 and miou(single, fold.test.classes) == miou(rows, fold.test.classes)
    result = evaluation.summarise(rows, fold.test.classes, fold.test.images.classes)
    assert result['miou_interval'] == bootstrap(single, fold.test.classes)['miou']
    assert finish(tmp_path, None, some(fold, 4, queries=3)) == rows
    assert all('each' in r for r in finish(tmp_path, None, some(fold, 4, queries=3), uncertainty=False))
    assert not any('each' in r for r in evaluate(model, some(fold, 2), progress=False))


def test_rows_of_several_queries_by_an_older_version_are_made_again(tmp_path, monkeypatch, model, fold):
    episodes, made, real = some(fold, 4, queries=2), [], evaluation.judge
    rows = evaluate(model, episodes, tmp_path, progress=False)
    finish(tmp_path, None, episodes)
    path = tmp_path/'episodes.jsonl'
    first, *lines = path.read_text().splitlines()
    older = [{k: v for k, v in json.loads(line).items() if k != 'each'} for line in lines]
    path.write_text('\n'.join([first, *map(json.dumps, older[:2]), *lines[2:]]) + '\n')
    monkeypatch.setattr(evaluation, 'judge', lambda *args: made.append(1) or real(*args))
    assert evaluate(model, episodes, tmp_path, progress=False) == rows and len(made) == 2
    assert finish(tmp_path, None, episodes) == rows


def test_a_gap_resamples_each_of_several_queries(fold):
    worse = [row | dict(inter=row['inter']//2, each=[[i//2, *rest] for i, *rest in row['each']])
             for row in asked_about(8)]
    alone = [row | dict(inter=row['inter']//2) for row in asked_about(1)]
    found, expected = (np.diff(gap(ours, theirs, (1,), 400)[1])[0]
                       for ours, theirs in ((asked_about(8), worse), (asked_about(1), alone)))
    assert found > .8*expected


def test_results_say_which_question_their_interval_answers(tmp_path, capsys):
    result = run(tmp_path)
    said = capsys.readouterr().out
    assert result['intervals'] == 'query images' and result['draws'] == 2
    assert '95% intervals over query images: what other images of these classes would give' in said


# ---- beside the paper's

VOC = 'PASCAL VOC 2012, val: 1,449 images, 20 classes'
OPENED = dict(pascal=VOC, coco2pascal=VOC, coco='COCO 2014, val, full masks: 40,137 images, 80 classes')


def invent(fold=0, shots=5, dataset='pascal', **changed):
    run = make_config('paper', dict(name=dataset, fold=fold), 'imagenet', shots=1 if shots == 1 else 5).to_dict()
    images = KNOWN['pascal', 'train', 'pfenet'] if dataset == 'pascal' else KNOWN['coco', 'train']
    result = dict(miou=.5, miou_interval=(.4, .6), episodes=EPISODES_OF_PAPER[dataset], data=f'{dataset}, fold {fold}',
                  part='', shots=shots, fold=fold, size=run['recipe']['size'], queries=1, list=None,
                  features='computed', draws=DRAWS, command='none',
                  opened=dict(name=dataset, fold=fold, min_area=MIN_AREA, images=OPENED[dataset]),
                  model=run['model'], trained=trained_as(run) | images)
    result = json.loads(json.dumps(result))
    for name, value in changed.items():
        *path, last = name.split('__')
        at = result
        for part in path: at = at[part]
        at[last] = value
    return result


def cells(table):
    "Ours in fold 0"
    return [v for row in table['rows'] for k, v in row.items() if 'F0' in k and 'ours' in f'{k}{row.get("method")}']


def test_the_papers_model_enters_its_tables():
    for table, dataset in (('pascal', 'pascal'), ('coco', 'coco'), ('transfer', 'coco2pascal'), ('shots', 'pascal'),
                           ('ablation', 'pascal'), ('kernels', 'pascal')):
        found = ours_beside(table, [invent(dataset=dataset)])
        assert cells(found).count('50.0 (40.0 to 60.0)') == 1 and not found['apart'], table
    same = dict(trained__recipe__lr_backbone=1e-5, trained__recipe__micro=8, trained__recipe__seed=3,
                model__scales=(16,), trained__weights='/w/resnet50-0676ba61.pth', trained__data__train_list='pfenet')
    for name, value in same.items(): assert not ours_beside('pascal', [invent(**{name: value})])['apart'], name
    plain = invent(model__output='mean', model__mask_encoder='pool', model__encoding_dim=1, model__window=1)
    assert not ours_beside('ablation', [plain])['apart']
    assert EPISODES_OF_PAPER == {k: EPISODES[k] for k in EPISODES_OF_PAPER}


@pytest.mark.parametrize('name, value, says', [
    ('model__backbone', 'resnet18', "backbone 'resnet18', not 'resnet50'"),
    ('model__scales', (32, 16), 'scales [32, 16], not [16]'),
    ('model__freeze_backbone', True, 'freeze_backbone True'), ('model__noise_var', .1, 'noise_var 0.1, not 0.01'),
    ('model__max_points', 500, 'max_points 500, not None'), ('model__decoder_width', 64, 'decoder_width 64'),
    ('trained__recipe__augment', False, 'trained with augment False, not True'),
    ('trained__recipe__lr', 1e-3, 'trained with lr 0.001, not 1e-05'),
    ('trained__recipe__iterations', 1500, 'iterations 1500, not 20000'), ('trained__recipe__batch', 4, 'batch 4'),
    ('trained__recipe__foreground_weight', 4., 'foreground_weight 4.0, not 1.0'),
    ('trained__recipe__optimizer', 'adamw', "optimizer 'adamw'"),
    ('trained__recipe__size', 320, 'trained with size 320'), ('trained__recipe__held_out', 3, 'held_out 3'),
    ('trained__recipe__shots', 1, 'trained with shots 1, not 5'),
    ('trained__weights', None, "began with weights None, not 'imagenet'"),
    ('trained__weights', 'mine.pth', "began with weights 'mine.pth'"),
    ('trained__images', 500, 'trained on 500 images, not 5,953'),
    ('trained__images', None, 'an unknown number of images'),
    ('trained__data__fold', 1, 'trained on data with fold 1, not 0'),
    ('trained__data__train_list', 'aug', "train_list 'aug', not 'pfenet'"),
    ('trained__data__name', 'coco', "name 'coco', not 'pascal'"), ('trained', None, 'nothing was trained'),
    ('opened__min_area', 144, 'min_area 144, not 2048'),
    ('opened__name', 'shapes', "data set 'shapes', not 'pascal'"), ('opened__min_images', 11, 'min_images 11, not 0'),
    ('part', 'only 447 of 1,449 validation images', 'only 447 of 1,449'),
    ('episodes', 1000, 'episodes 1000, not 5000'), ('size', 320, 'size 320, not 448'),
    ('queries', 2, 'queries 2, not 1'), ('list', 'mine.txt', "list 'mine.txt', not None"),
    ('features', 'kept', "features 'kept', not 'computed'"), ('shots', 3, 'shots 3, not'),
    ('draws', 1, 'draws 1, not 2'), ('draws', None, 'draws None, not 2'),
    ('opened__images', 'PASCAL VOC 2007, val', "images of 'PASCAL VOC 2007, val', not PASCAL VOC 2012, val")])
def test_anything_else_stands_apart_and_says_what_differs(name, value, says):
    table = ours_beside('pascal', [invent(**{name: value})])
    assert set(cells(table)) == {NOT_MEASURED} and len(table['apart']) == 1
    assert says in table['apart'][0], table['apart']
    assert says in as_text(table).partition('stand apart')[2] and 'ours: not measured' in as_text(table)


def test_one_shot_needs_a_one_shot_training_and_more_the_other():
    one, many = invent(shots=1, trained__recipe__shots=5), invent(shots=3)
    assert 'trained with shots 5, not 1' in ours_beside('shots', [one])['apart'][0]
    for fine in (many, invent(shots=1)): assert not ours_beside('shots', [fine])['apart']
    assert ours_beside('shots', [invent(shots=10, trained__recipe__shots=10)])['apart']


def test_coco_by_its_split_and_masks():
    for options, says in ((dict(opened__split='contiguous'), "split 'contiguous'"),
                          (dict(trained__data__masks='compat'), "masks 'compat', not 'full'"),
                          (dict(trained__recipe__size=448), 'size 448, not 512')):
        assert says in ours_beside('coco', [invent(dataset='coco', **options)])['apart'][0]


def test_coco_of_2017_never_enters_the_papers_tables(tmp_path):
    "By the images that were opened; a title may say anything"
    opened = {}
    for year in (2014, 2017):
        make_coco(tmp_path/str(year), 'val', year)
        build_coco(tmp_path/str(year), progress=False)
        options = dict(name='coco', root=tmp_path/str(year), min_area=50)
        opened[year] = json.loads(json.dumps(opened_data(options, open_data(**options).test))) | dict(min_area=MIN_AREA)
    assert not ours_beside('coco', [invent(dataset='coco', opened=opened[2014])])['apart']
    table = ours_beside('coco', [invent(dataset='coco', opened=opened[2017])])
    assert set(cells(table)) == {NOT_MEASURED}
    assert "images of 'COCO 2017, val, full masks: 3 images, 80 classes', not COCO 2014, val" in table['apart'][0]
    without = {k: v for k, v in opened[2014].items() if k != 'images'}
    assert 'images of None, not COCO 2014' in ours_beside('coco', [invent(dataset='coco', opened=without)])['apart'][0]


def test_older_results_and_second_ones_stand_apart():
    old = {k: v for k, v in invent().items() if k not in ('opened', 'trained', 'queries', 'features', 'list')}
    assert 'older version' in ours_beside('pascal', [old])['apart'][0]
    table = ours_beside('pascal', [invent(), invent(miou=.7)])
    assert '50.0 (40.0 to 60.0)' in cells(table) and len(table['apart']) == 1
    assert 'another result of the same kind' in table['apart'][0]


def test_the_command_keeps_a_small_model_out_of_the_papers_table(tmp_path, capsys):
    run(tmp_path, '--table', 'pascal')
    said = capsys.readouterr().out
    assert 'ours, measured' in said and said.count('not measured') >= 10 and 'stand apart' in said
    assert "data set 'shapes', not 'pascal'" in said


# ---- studies

def evaluated(folder, episodes, model, key=None):
    "As a run of a study leaves it"
    rows = evaluate(model, episodes, folder, key, progress=False)
    finish(folder, key, episodes)
    data, about = episodes.data, dict(shots=episodes.shots, fold=0, seed=0, data='x')
    result = evaluation.summarise(rows, data.classes, data.images.classes, **about)
    (folder/'result.json').write_text(json.dumps(result))
    return rows


def test_a_study_pairs_only_the_same_episodes(tmp_path, model, fold):
    study = Study('tiny', [(FULL, 0), ('prototype', 0)], '', '', '', (2,), {})
    for variant, _ in study.runs:
        folder = tmp_path/study.folder(variant, 0)
        evaluated(folder/'eval/x_2shot_seed0', some(fold, 6), model)
        done = dict(commands=study.commands(variant, 0, tmp_path), versions=dict(git=None))
        (folder/'done.json').write_text(json.dumps(done))
    for n in (9, 6):  # there have been more episodes than those of the other
        rows = evaluated(folder/'eval/x_2shot_seed0', some(fold, n), model)
    found = gather(study, tmp_path)
    assert [r.get('gap') for r in found['results']] == [None, 0.]
    assert '95% intervals over query images' in study_table(found, 2, 'x')['note']
    older = {k: v for k, v in found['results'][0].items() if k != 'intervals'}
    assert '95% intervals over episodes' in study_table(dict(results=[older]), 2, 'x')['note']
    shutil.rmtree(folder/'eval')
    evaluated(folder/'eval/x_2shot_seed0', some(fold, 6, seed=1), model)
    says = 'prototype_fold0.*evaluated on different episodes: remove eval/ and done.json of the older run'
    with pytest.raises(ValueError, match=says):
        gather(study, tmp_path)
    with pytest.raises(ValueError, match='different episodes'):
        gap(rows, [{k: v for k, v in r.items() if k != 'mark'} for r in rows], fold.test.classes)
    assert miou(rows, fold.test.classes) >= 0
