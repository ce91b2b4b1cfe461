"The segmenter: learning, predicting, adding and removing, what to annotate next"
import inspect
import itertools
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from deepgp_fss.base import BadFile
from deepgp_fss.episodes import content_size, from_window, image_window
from deepgp_fss.folders import segment_files
from deepgp_fss.gp import GaussianProcess
from deepgp_fss.inputs import as_image
from deepgp_fss.model import DeepGPNet, save_checkpoint
from deepgp_fss.segmenter import FewShotSegmenter, bundled
from deepgp_fss.training_free import ODDS
from deepgp_fss.widgets import Workbench
from toys import MODELS, ONE, SIZES, close, free, make, maps, same, saved, scene, scenes, sentence, tiny

ENVIRONMENT = os.environ | dict(OMP_NUM_THREADS='1', TQDM_DISABLE='1')

class Encoded:
    "Counts images that an encoder sees"
    def __init__(self, segmenter):
        self.n = 0
        self.hook = segmenter.model.encoder.stage1.register_forward_hook(self.count)
    def count(self, module, args, out): self.n += len(args[0])


# ---- learning

def test_the_support_is_checked_before_anything_is_forgotten():
    segmenter, (images, masks) = make('tiny'), scenes(range(3))
    before = segmenter.fit(images, masks).predict(images[0])
    wrong = [(images, masks[:2], '3 images and 2 masks'), ([], [], 'nothing to learn from'),
             (images, [masks[0], masks[1]*0, masks[2]], 'the mask of image 1 is empty'),
             (images, [masks[0], masks[1].T[:50], masks[2]], 'the mask of image 1 is 64x50, but its image is 64x64'),
             (images, [masks[0], masks[1], None], 'the mask of image 2'),
             (images, [masks[0], masks[1]*.1, masks[2]], 'the mask of image 1 holds values that are not labels'),
             ([images[0], 'missing.png', images[2]], masks, 'missing.png'),
             ([images[0], images[1]*1., images[2]], masks, 'image 1 holds floating values')]
    for x, m, words in wrong:
        with pytest.raises(ValueError) as error: segmenter.fit(x, m)
        sentence(error, words)
    for x, m, words in ((images[0], masks[0][1:], 'the mask of image 3 is 64x63'),
                        (images[0], masks[0]*0, 'the mask of image 3 is empty'),
                        (images[0]/2, masks[0], 'image 3 holds')):
        with pytest.raises(ValueError) as error: segmenter.add(x, m)
        sentence(error, words)
    for i in (3, -4, 99):
        with pytest.raises(ValueError, match=f'no image {i}'): segmenter.remove(i)
    assert len(segmenter.images) == 3 and same(segmenter.predict(images[0]), before)


def test_an_empty_mask_file_is_named(tmp_path):
    file = saved(tmp_path, Image.fromarray(np.zeros((64, 64), np.uint8)), 'blank.png')
    with pytest.raises(BadFile, match='blank.png'): make('tiny').fit([scene()[0]], [file])


def test_an_object_that_is_too_small_is_named():
    image, mask = scene(0, 700, 700)[0], np.zeros((700, 700), np.uint8)
    mask[1, 1] = 1
    with pytest.raises(BadFile) as error: make('tiny').fit([image], [mask])
    sentence(error, 'the mask of image 0', 'vanishes', '64 pixels')


def test_a_class_that_is_too_small_is_named():
    image, mask = scene(0, 700, 700, labels=(1,))
    mask[-1, -1] = 2
    with pytest.raises(BadFile, match='vanishes'): make('tiny').fit([image], [mask])


def test_nothing_is_known_before_fit():
    segmenter = make('tiny')
    for ask in (segmenter.predict, lambda x: list(segmenter.predict_many([x])), lambda x: segmenter.suggest([x])):
        with pytest.raises(ValueError) as error: ask(scene()[0])
        sentence(error, 'knows nothing yet')
    with pytest.raises(ValueError, match='at least 32'): FewShotSegmenter(tiny(), 31)
    with pytest.raises(ValueError, match='no image 0'): segmenter.remove(0)
    assert segmenter.add(*scene()).predict(scene()[0]).labels == (1, 2)  # adding to nothing is learning


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_learning_does_not_care_about_the_form(kind, tmp_path):
    (images, masks), query = scenes(range(3), labels=(1,)), scene(5)[0]
    out = make(kind).fit(images, masks).predict(query)
    def files_of(arrays, name):
        return [saved(tmp_path, Image.fromarray(x), f'{name}{i}.png') for i, x in enumerate(arrays)]
    tensors = [torch.from_numpy(x).permute(2, 0, 1)/255. for x in images], [torch.from_numpy(m) for m in masks]
    files = files_of(images, 'x'), files_of([255*m for m in masks], 'm')
    pictures = map(Image.fromarray, images), (Image.fromarray(m > 0) for m in masks)
    forms = [files, pictures, tensors]
    for x, m in forms: assert same(make(kind).fit(x, m).predict(saved(tmp_path, Image.fromarray(query), 'q.png')), out)


def test_arrays_are_neither_changed_nor_kept():
    (images, masks), query = scenes(range(2)), scene(5)[0]
    copies = [x.copy() for x in (*images, *masks, query)]
    segmenter = make('tiny').fit(images, masks)
    before = segmenter.predict(query)
    assert all(np.array_equal(a, b) for a, b in zip((*images, *masks, query), copies))
    for x in (*images, *masks): x[:] = 1
    assert same(segmenter._learn(segmenter.shots).predict(query), before)


def test_arrays_that_cannot_be_written_are_no_reason_to_warn():
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        image, mask = (np.asarray(Image.fromarray(x)) for x in scene())
        assert not image.flags.writeable and make('tiny').fit([image], [mask]).predict(image)


# ---- predicting

@pytest.mark.parametrize('kind', ['tiny', 'free', 'two'])
@pytest.mark.parametrize('labels', [(1,), (2, 9)])
def test_everything_has_the_size_of_the_image(kind, labels):
    segmenter, single = make(kind).fit(*scenes(range(2), labels=labels)), len(labels) == 1
    assert segmenter.labels == labels
    for size in SIZES:
        p = segmenter.predict(scene(9, *size, labels=labels)[0])
        assert p.mask.shape == p.variance.shape == size
        assert p.probability.shape == p.gp_mean.shape == (size if single else (2, *size))
        assert p.mask.dtype == np.uint8 and {x.dtype for x in maps(p).values()} == {np.dtype(np.float32)}
        assert all(np.isfinite(x).all() for x in maps(p).values())
        assert 0 <= p.probability.min() and p.probability.max() <= 1
        assert 0 <= p.variance.min() and p.variance.max() <= 1 and p.labels == labels
        each = p.probability.reshape(-1, *size)
        offset = ODDS[False, True][1] if kind == 'free' else 0.  # log odds where the mask ends
        inside = each.max(0) > 1/(1 + np.exp(-offset))
        assert np.array_equal(p.mask, np.where(inside, np.array(labels)[each.argmax(0)], 0))


@pytest.mark.parametrize('kind', ['tiny', 'free'])
@pytest.mark.parametrize('size', [(1, 1), (1, 90), (33, 20), (200, 41)])
def test_support_images_of_every_size(kind, size):
    image, mask = scene(0, *size, labels=(1,))
    segmenter = make(kind).fit([image, scene(1)[0]], [np.ones(size, bool), scene(1)[1] > 0])
    for p in segmenter.predict_many([image, scene(2)[0]], progress=False):
        assert np.isfinite(p.probability).all()


def test_the_bundled_model_finds_the_object():
    segmenter = FewShotSegmenter.from_pretrained('shapes')
    images, masks = scenes(range(6), height=96, width=96, labels=(3,))
    segmenter.fit(images[:5], [m > 0 for m in masks[:5]])
    found, truth = segmenter.predict(images[5]).mask > 0, masks[5] > 0
    assert segmenter.size == 96 and (found & truth).sum()/(found | truth).sum() > .3
    assert bundled('shapes').is_file() and bundled('other') is None
    with pytest.raises(BadFile) as error: FewShotSegmenter.from_pretrained('nothing')
    sentence(error, "'nothing'", 'shapes')


def test_a_run_is_opened_by_its_folder(tmp_path):
    path = save_checkpoint(tmp_path/'run/model.safetensors', tiny(), run=dict(recipe=dict(size=64)))
    images, masks = scenes(range(2))
    out = make('tiny').fit(images, masks).predict(images[0])
    for name in (path, str(path), path.parent):
        assert same(FewShotSegmenter.from_pretrained(name).fit(images, masks).predict(images[0]), out)
    assert FewShotSegmenter.from_pretrained(path, size=48).size == 48
    assert FewShotSegmenter.from_pretrained(save_checkpoint(tmp_path/'m.safetensors', tiny())).size == 448


@pytest.mark.parametrize('kind', ['tiny', 'free', 'prototype'])
def test_each_of_several_classes_is_as_if_learnt_alone(kind):
    "From one factorisation; without training, one length scale is chosen for all classes, so there is no choice here"
    new = lambda: FewShotSegmenter(free(**ONE), 64) if kind == 'free' else make(kind)
    (images, masks), query = scenes(range(3), labels=(2, 5, 9)), scene(8, labels=(9, 2))[0]
    together = new().fit(images, masks).predict(query)
    assert together.labels == (2, 5, 9) and together.probability.shape == (3, 64, 64)
    for n, c in enumerate(together.labels):
        alone = new().fit(images, [m == c for m in masks]).predict(query)
        np.testing.assert_allclose(together.probability[n], alone.probability, atol=2e-4)
        if alone.gp_mean is not None: np.testing.assert_allclose(together.gp_mean[n], alone.gp_mean, atol=2e-4)
        if alone.variance is not None: np.testing.assert_allclose(together.variance, alone.variance, atol=2e-4)
    for a, b in ((0, 1), (0, 2), (1, 2)):  # or it would prove nothing
        assert np.abs(together.probability[a] - together.probability[b]).max() > 2e-3


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_one_factorisation_serves_all_classes(kind, monkeypatch):
    sizes, prepare = [], GaussianProcess.prepare
    def counted(self, x, *args):
        sizes.append(x.shape[-2])
        return prepare(self, x, *args)
    monkeypatch.setattr(GaussianProcess, 'prepare', counted)
    for labels in ((1,), (1, 2, 3, 4)):
        segmenter = FewShotSegmenter(free(**ONE), 64) if kind == 'free' else make(kind)
        segmenter.fit(*scenes(range(2), labels=labels))
    assert sizes == [32, 32]  # of two images of 4 x 4 cells


def test_a_label_in_some_of_the_images_only():
    images, masks = map(list, zip(*[scene(i, labels=c) for i, c in enumerate(((1, 2), (1,), (2,)))]))
    for kind in ('tiny', 'free'):
        p = make(kind).fit(images, masks).predict(scene(7)[0])
        assert p.labels == (1, 2) and np.isfinite(p.probability).all()


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_the_support_is_encoded_once_and_a_prediction_costs_one_image(kind):
    segmenter, (images, masks) = make(kind), scenes(range(5))
    seen = Encoded(segmenter)
    segmenter.fit(images[:4], masks[:4])
    assert seen.n == 4
    for n in (5, 6): segmenter.predict(images[0]); assert seen.n == n
    list(segmenter.predict_many(images, 2, progress=False))
    assert seen.n == 11
    segmenter.suggest(images[:3])
    assert seen.n == 14
    segmenter.add(images[4], masks[4])
    assert seen.n == (15 if kind == 'tiny' else 19)  # extended; without training, the threshold is chosen again
    segmenter.remove(1)
    assert seen.n == (15 if kind == 'tiny' else 23)


def test_a_query_is_read_once(tmp_path, monkeypatch):
    "Whatever its form, and whoever asks"
    (images, masks), read = scenes(range(3)), []
    def counted(x, name='image'):
        read.append(name)
        return as_image(x, name)
    for module in ('inputs', 'segmenter', 'folders', 'widgets'):
        monkeypatch.setattr(f'deepgp_fss.{module}.as_image', counted)
    def reads(ask):
        read.clear()
        ask()
        return len(read)
    segmenter, file = make('tiny'), saved(tmp_path, Image.fromarray(images[0]), 'a.png')
    assert reads(lambda: segmenter.fit(images, masks)) == 3 and reads(lambda: segmenter.add(images[0], masks[0])) == 1
    assert reads(lambda: segmenter.predict(file)) == 1 and reads(lambda: segmenter.suggest(images)) == 3
    assert reads(lambda: list(segmenter.predict_many(images, 2, progress=False))) == 3
    assert reads(lambda: segment_files(segmenter, [file]*5, tmp_path/'out', batch=2, progress=False)) == 5
    bench = Workbench(segmenter)
    assert reads(lambda: bench.put('a.png', file)) == 1
    bench.teach('a.png', masks[0] == 1)
    assert reads(lambda: bench.predict('a.png')) == 0


def test_the_model_is_not_touched():
    model, (images, masks) = DeepGPNet(tiny().config).train(), scenes(range(2))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    FewShotSegmenter(model, 64).fit(images, masks).predict(images[0])
    assert model.training and all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_what_was_seen_has_a_smaller_variance_than_what_was_not(kind):
    images, masks = scenes(range(3))
    segmenter = make(kind).fit(images, masks)
    strange = np.random.default_rng(1).integers(0, 2, (64, 64, 3)).astype(np.uint8)*255
    assert max(segmenter.predict(x).variance.mean() for x in images) < .8*segmenter.predict(strange).variance.mean()


def whole_maps(segmenter, query):
    "Probability, mean and variance of one class in the window, by hand, from cells of 8 x 8 pixels"
    net, content = segmenter.model, [content_size(*query.shape[:2], segmenter.size)]
    window = image_window(query, segmenter.size)[None, None]
    with torch.inference_mode(): scores, z = net.infer(segmenter.state, window, details=True, content=content)
    logits, finest = scores[0, 0], z[-1][0, 0]
    cells = torch.cat([net.mean_map(finest), finest[:1, net.variance_channel].clamp(0, 1)])
    grown = F.interpolate(cells[None], scale_factor=8, mode='bilinear')[0]
    odds = logits[0, 1] - logits[0, 0]
    if net.has_threshold: odds = net.log_odds(odds, len(segmenter.shots))
    return dict(probability=odds.sigmoid(), gp_mean=grown[0], variance=grown[1])


@pytest.mark.parametrize('kind', ['tiny', 'free'])
@pytest.mark.parametrize('size', [(64, 64), (40, 64), (64, 21)])
def test_maps_lie_where_the_cells_are(kind, size):
    segmenter, query = make(kind).fit(*scenes(range(3), labels=(1,))), scene(6, *size)[0]
    for name, whole in whole_maps(segmenter, query).items():
        shown = maps(segmenter.predict(query))[name]
        np.testing.assert_allclose(shown, whole[:size[0], :size[1]], atol=1e-4, err_msg=name)


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_maps_lie_where_the_cells_are_if_the_size_is_no_multiple_of_them(kind):
    segmenter, query = make(kind, 44).fit(*scenes(range(3), height=44, width=44, labels=(1,))), scene(6, 44, 44)[0]
    for name, whole in whole_maps(segmenter, query).items():
        np.testing.assert_allclose(maps(segmenter.predict(query))[name], whole[:44, :44], atol=1e-4, err_msg=name)


# ---- many images

@pytest.mark.parametrize('kind', ['tiny', 'free'])
@pytest.mark.parametrize('batch', [1, 3, 10])
def test_predict_many_holds_one_batch_and_equals_predict(kind, batch):
    segmenter, pulled = make(kind).fit(*scenes(range(2))), []
    def endless():
        for i in itertools.count(): pulled.append(i); yield scene(i, *SIZES[3 + i % 4])[0]
    many = segmenter.predict_many(endless(), batch, progress=False)
    assert inspect.isgenerator(many) and not pulled
    for i in range(7):
        out = next(many)
        assert len(pulled) == (i//batch + 1)*batch
        close(out, segmenter.predict(scene(i, *SIZES[3 + i % 4])[0]))
        assert out.mask.shape == SIZES[3 + i % 4]


def test_predict_many_of_few_and_of_bad_images():
    segmenter, images = make('tiny').fit(*scenes(range(2))), [scene(i)[0] for i in range(3)]
    assert [len(list(segmenter.predict_many(images[:n], 2, progress=False))) for n in range(4)] == [0, 1, 2, 3]
    many = segmenter.predict_many([images[0], images[1], images[2]/1.], 1, progress=False)
    assert same(next(many), segmenter.predict(images[0])) and next(many)
    with pytest.raises(BadFile) as error: next(many)
    sentence(error, 'image 2')
    with pytest.raises(ValueError) as error: list(segmenter.predict_many(images, 0))
    sentence(error, 'batch must be at least 1')


def test_large_photographs_need_little_memory():
    "12 megapixels: 36 MB of image, 160 MB of results; three more, one after another, need no more than one"
    script = '''if True:
        import json, re, numpy as np
        from pathlib import Path
        from deepgp_fss.segmenter import FewShotSegmenter
        def peak(): # asked for, not resident
            return int(re.search('VmPeak:[^0-9]*([0-9]+)', Path('/proc/self/status').read_text())[1])/1024
        rng = np.random.default_rng(0)
        image, mask = rng.integers(0, 256, (96, 96, 3), dtype=np.uint8), np.arange(96*96).reshape(96, 96) % 96 > 40
        segmenter = FewShotSegmenter.from_pretrained('shapes').fit([image], [mask])
        segmenter.predict(image)
        large = np.kron(rng.integers(0, 256, (300, 400, 3), dtype=np.uint8), np.ones((10, 10, 1), np.uint8))
        at_first = peak()
        shapes = [segmenter.predict(large).mask.shape]
        after_one = peak()
        many = segmenter.predict_many((large for _ in range(3)), 1, progress=False)
        for p in many: shapes.append(p.probability.shape)
        print(json.dumps(dict(shapes=shapes, one=after_one - at_first, more=peak() - after_one)))'''
    command = [sys.executable, '-c', script]
    out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=ENVIRONMENT).stdout)
    assert out['shapes'] == [[3000, 4000]]*4 and out['one'] < 700 and out['more'] < 400, out


# ---- adding and removing

@pytest.mark.parametrize('kind', MODELS)
def test_add_and_remove_equal_learning_from_scratch(kind):
    (images, masks), query = scenes(range(6)), scene(11)[0]
    def scratch(which): return make(kind).fit([images[i] for i in which], [masks[i] for i in which]).predict(query)
    segmenter, now = make(kind).fit(images[:2], masks[:2]), [0, 1]
    few, more = scratch([0, 1]).probability, scratch([0, 1, 2]).probability
    assert np.ptp(few) > 1e-3 and np.abs(few - more).max() > 5e-4  # or it would prove nothing
    for what in ('+2', '+3', '-0', '+4', '-1', '-2', '+0', '+5'):
        i = int(what[1:])
        if what[0] == '+': now.append(i); assert segmenter.add(images[i], masks[i]) is segmenter
        else: del now[i]; segmenter.remove(i)
        assert len(segmenter.images) == len(segmenter.masks) == len(now)
        close(segmenter.predict(query), scratch(now))


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_a_new_class_comes_with_an_image_and_goes_with_it(kind):
    images, masks = map(list, zip(scene(0, labels=(1,)), scene(1, labels=(1,)), scene(2, labels=(1, 4))))
    query = scene(11)[0]
    segmenter = make(kind).fit(images[:2], masks[:2])
    before = segmenter.predict(query)
    after = segmenter.add(images[2], masks[2]).predict(query)
    assert before.labels == (1,) and after.labels == (1, 4) and after.probability.shape == (2, 64, 64)
    close(after, make(kind).fit(images, masks).predict(query))
    close(segmenter.remove(2).predict(query), before)
    without_the_first = make(kind).fit(images[1:], masks[1:]).predict(query)
    close(segmenter.add(images[2], masks[2]).remove(0).predict(query), without_the_first)
    assert segmenter.labels == (1, 4)


def test_removing_counts_from_either_end_and_leaves_one():
    (images, masks), query = scenes(range(4)), scene(11)[0]
    for i in (-4, -1, 0, 2):
        others = [[x[k] for k in range(4) if k != i % 4] for x in (images, masks)]
        close(make('tiny').fit(images, masks).remove(i).predict(query), make('tiny').fit(*others).predict(query))
    segmenter = make('tiny').fit(images[:1], masks[:1])
    with pytest.raises(ValueError) as error: segmenter.remove(0)
    sentence(error, 'last image cannot be removed')
    assert len(segmenter.images) == 1 and segmenter.predict(query)


# ---- what to annotate next

@pytest.mark.parametrize('kind', ['tiny', 'free', 'two'])
def test_copies_of_the_support_teach_least(kind):
    segmenter, (images, masks) = make(kind).fit(*scenes(range(3))), scenes(range(9))
    ranked = segmenter.suggest(x for x in [images[1], *images[3:], images[0]])
    gains = [gain for _, gain in ranked]
    assert sorted(i for i, _ in ranked) == list(range(8)) and gains == sorted(gains, reverse=True) and gains[-1] >= 0
    assert {i for i, _ in ranked[-2:]} == {0, 7}
    best = [images[1], *images[3:], images[0]][ranked[0][0]]
    assert segmenter.add(best, masks[0]).suggest([best])[0][1] < .8*gains[0]
    assert segmenter.suggest([]) == [] and len(segmenter.suggest([scene(0, *s)[0] for s in SIZES])) == len(SIZES)


def test_the_gain_is_the_one_of_the_definition():
    segmenter, query = FewShotSegmenter(free(**ONE), 64).fit(*scenes(range(2))), scene(5, 40, 64)[0]
    windows = [*segmenter.images, image_window(query, 64)]
    x = [segmenter.model.maps(w[None, None])[0, 0, :, ::2, ::2].double() for w in windows]
    known = torch.cat([t.flatten(1).T for t in x[:2]])
    new = x[2][:, :3].flatten(1).T  # 40 pixels are five rows of cells, of which three are looked at
    k = lambda a, b: torch.exp(-torch.cdist(a, b).square()/(2*.4))
    C = k(new, new) - k(new, known) @ torch.linalg.solve(k(known, known) + .1*torch.eye(len(known)), k(known, new))
    gain = float(torch.logdet(torch.eye(len(new)) + C/.1))/2/len(new)
    assert segmenter.suggest([query])[0][1] == pytest.approx(gain, rel=1e-3)


NOT_A_WHOLE_GP = MODELS['prototype'], MODELS['bounded'], lambda: tiny(learner='attention'), lambda: free('prototype')


@pytest.mark.parametrize('net', NOT_A_WHOLE_GP)
def test_only_a_whole_gp_can_suggest(net):
    with pytest.raises(ValueError) as error: FewShotSegmenter(net(), 64).fit(*scenes(range(2))).suggest([scene(5)[0]])
    sentence(error, 'Only a Gaussian process')


# ---- small mercies

def test_a_stray_pixel_is_no_reason_to_refuse_a_class_that_others_show():
    image, mask = scene(0, 700, 700, labels=(1,))
    big = mask.copy()
    big[-200:, -200:] = 2
    mask[-1, -1] = 2
    segmenter = make('tiny').fit([image, image], [mask, big])
    assert segmenter.labels == (1, 2)
    assert segmenter.add(image, mask).labels == (1, 2)


def test_a_wrong_question_is_noticed_when_it_is_asked():
    with pytest.raises(ValueError, match='knows nothing yet'): make('tiny').predict_many([])


# ---- fair odds and the best mask

def weighted(weight):
    model = tiny()
    model.info = dict(run=dict(recipe=dict(foreground_weight=weight)))
    return model


def test_the_weight_of_the_loss_is_undone(tmp_path):
    images, masks = scenes(range(2), labels=(1,))
    plain, fair = (FewShotSegmenter(weighted(4.), 64, weight=w).fit(images, masks) for w in (1., None))
    for query in (scene(5)[0], scene(6, 40, 90)[0]):
        p, q = plain.predict(query), fair.predict(query)
        np.testing.assert_allclose(q.probability/(1 - q.probability), p.probability/(1 - p.probability)/4, rtol=1e-4)
        assert np.array_equal(p.mask > 0, p.probability > .5)  # equal weights: argmax
        assert not ((q.mask > 0) & (p.probability <= .5)).any() and 0 <= q.expected_iou <= 1
        if q.mask.any(): assert np.array_equal(q.mask > 0, q.probability >= q.probability[q.mask > 0].min())
    again = FewShotSegmenter.load(fair.save(tmp_path/'fair.safetensors')).predict(query)
    assert same(again, q) and again.expected_iou == q.expected_iou


def test_each_of_several_classes_has_its_own_cut():
    images, masks = scenes(range(2))
    p = FewShotSegmenter(weighted(4.), 64).fit(images, masks).predict(scene(5)[0])
    assert p.expected_iou.shape == (2,) and p.expected_iou.dtype == np.float32
    for n, label in enumerate(p.labels):
        alone = FewShotSegmenter(weighted(4.), 64).fit(images, [m == label for m in masks]).predict(scene(5)[0])
        np.testing.assert_allclose(p.expected_iou[n], alone.expected_iou, atol=1e-3)


def test_only_a_weight_can_be_undone():
    for weight in (0, -2., float('inf'), float('nan')):
        with pytest.raises(ValueError, match='weight must be above 0'): FewShotSegmenter(tiny(), 64, weight=weight)


def test_without_training_odds_are_calibrated_and_the_mask_stays():
    "Slope and offset belong to the number of shots; the mask ends where the scores are zero, as before"
    images, masks = scenes(range(2), labels=(1,))
    for K in (1, 2):
        segmenter, query = make('free').fit(images[:K], masks[:K]), scene(5)[0]
        p, (logits, *_) = segmenter.predict(query), segmenter._ask([query])
        gap = from_window((logits[0][:, 1] - logits[0][:, 0]).float(), *query.shape[:2])[0].numpy()
        slope, offset = ODDS[False, K > 1]
        np.testing.assert_allclose(p.probability, 1/(1 + np.exp(-slope*gap - offset)), atol=1e-5)
        assert np.array_equal(p.mask > 0, gap > 0) and p.mask.any()
        inside, q = p.mask > 0, p.probability.astype(float)
        assert p.expected_iou == pytest.approx(q[inside].sum()/(q.sum() + (1 - q[inside]).sum()), abs=1e-5)


def test_learners_without_odds_expect_nothing():
    images, masks = scenes(range(2), labels=(1,))
    assert FewShotSegmenter(free('prototype'), 64).fit(images, masks).predict(scene(5)[0]).expected_iou is None


@pytest.mark.parametrize('labels', [(1,), (1, 2)])
def test_uncertainty_is_the_chance_of_the_unlikelier_answer(labels):
    images, masks = scenes(range(2), labels=labels)
    p = FewShotSegmenter(weighted(4.), 64).fit(images, masks).predict(scene(5)[0])
    doubts = [np.where(q > .5, 1 - q, q) for q in (p.probability if len(labels) > 1 else [p.probability])]
    assert p.uncertainty.shape == p.mask.shape and 0 <= p.uncertainty.min() and p.uncertainty.max() <= .5
    np.testing.assert_array_equal(p.uncertainty, np.max(doubts, 0))


@pytest.mark.parametrize('weight', [0, -1, 'much', None, True, float('inf'), [4]])
def test_a_weight_that_is_none_is_named(tmp_path, weight):
    save_checkpoint(tmp_path/'model.safetensors', tiny(), run=dict(recipe=dict(size=64, foreground_weight=weight)))
    with pytest.raises(ValueError) as error: FewShotSegmenter.from_pretrained(tmp_path)
    sentence(error, 'weighed', 'damaged')


# ---- following edges

def left_to_right(height=64, width=64, middle=None):
    "A dark half and a bright half, with a little noise: image, and True in the bright half"
    bright = np.arange(width)[None].repeat(height, 0) >= (width//2 if middle is None else middle)
    noise = np.random.default_rng(0).integers(0, 12, (height, width, 3))
    return (noise + np.where(bright, 180, 40)[..., None]).astype(np.uint8), bright


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_masks_end_where_the_image_does(kind):
    "An edge between two cells: scores of cells cannot show where it is"
    (image, bright), (query, truth) = left_to_right(), left_to_right(middle=27)
    def wrong(edges):
        segmenter = FewShotSegmenter(MODELS[kind](), 64, edges=edges).fit([image], [bright])
        gap = segmenter._gaps(query, torch.from_numpy(np.where(truth, 1., -1.)[None, None]*[[[-.5]], [[.5]]])
                              .roll(5, -1)[..., :64].float())[0]  # five pixels off
        return int(((gap > 0).numpy() != truth)[:, 8:-8].sum())
    assert wrong(True) < wrong(False)/2


@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_edges_are_followed_in_images_of_every_size(kind, size):
    images, masks = scenes(range(2))
    segmenter = FewShotSegmenter(MODELS[kind](), 64, edges=True).fit(images, masks)
    out = segmenter.predict(scene(9, *size)[0])
    assert out.mask.shape == size and out.probability.shape == (2, *size) and np.isfinite(out.probability).all()
    assert out.probability.min() >= 0 and out.probability.max() <= 1


def test_large_photographs_follow_edges_at_a_bounded_size(monkeypatch):
    import deepgp_fss.segmenter as module
    seen, follow = [], module.follow_edges
    monkeypatch.setattr(module, 'follow_edges', lambda s, *how: seen.append(s.shape) or follow(s, *how))
    image, bright = left_to_right(900, 1200)
    out = FewShotSegmenter(MODELS['free'](), 64, edges=True).fit([image], [bright]).predict(image)
    assert out.mask.shape == (900, 1200) and seen == [(1, 480, 640)]


def test_the_support_says_whether_edges_help(tmp_path):
    images, masks = map(list, zip(*(left_to_right(middle=m) for m in (21, 27, 43))))
    segmenter = FewShotSegmenter(MODELS['free'](), 64, edges=None).fit(images, masks)
    assert set(segmenter.judged) == {('untrained', False), ('untrained', True)}
    assert segmenter.follows == (segmenter.judged['untrained', True] > segmenter.judged['untrained', False])
    assert 'following edges' in segmenter.choice and segmenter.choice.startswith('untrained')
    again = FewShotSegmenter.load(segmenter.save(tmp_path/'s.safetensors'))
    assert again.follows == segmenter.follows and same(again.predict(images[0]), segmenter.predict(images[0]))
    judged = segmenter.judged
    segmenter.add(images[0], masks[0])  # another support, another answer
    assert segmenter.judged != judged and len(segmenter.shots) == 4


def test_edges_of_several_classes_are_followed_one_by_one():
    images, masks = scenes(range(3))
    segmenter = FewShotSegmenter(MODELS['tiny'](), 64, edges=True)
    both = segmenter.fit(images, masks).predict(images[0])
    alone = segmenter.fit(images, [np.where(m == 2, 2, 0) for m in masks]).predict(images[0])
    assert np.allclose(both.probability[1], alone.probability, atol=2e-4)
