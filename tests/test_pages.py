"What the pages promise about the tests"
import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_test_that_the_page_names_is_there():
    "tutorials/what_it_survives: each row says which test would have caught it"
    page = json.loads((ROOT/'nbs/tutorials/what_it_survives.ipynb').read_text())
    texts = [''.join(c['source']) for c in page['cells']]
    lines = next(text for text in texts if 'the test that would have caught it' in text).splitlines()
    rows = [line for line in lines if line.startswith('| ') and not line.startswith('| what was wrong')]
    targets = (ROOT/'Makefile').read_text()
    assert len(rows) > 40
    for row in rows:
        named = re.findall(r'`([^`]+)`', row.split(' | ')[-1])
        assert named, row
        for name in named:
            file, _, test = name.partition('::')
            if test: assert f'def {test}(' in (ROOT/'tests'/file).read_text(), name
            elif name.startswith('make '): assert f'\n{name[5:]}:' in targets, name
            else: assert (ROOT/file).exists(), name
