"What the pages promise about the tests"
import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def found_in(file):
    "Names of the tests that pytest finds in a file of tests/"
    path = ROOT/'tests'/file
    if not path.is_file(): return []
    return [d.name for d in ast.parse(path.read_text()).body
            if isinstance(d, ast.FunctionDef) and d.name.startswith('test_')]


def is_there(name):
    "A `file.py::test`, a `make target`, or a page"
    file, with_test, test = name.partition('::')
    if with_test: return test in found_in(file)
    if name.startswith('make '): return f'\n{name[5:]}:' in (ROOT/'Makefile').read_text()
    return file.endswith('.ipynb') and (ROOT/file).is_file()


def rows_of_the_table():
    page = json.loads((ROOT/'nbs/tutorials/what_it_survives.ipynb').read_text())
    texts = [''.join(c['source']) for c in page['cells']]
    lines = next(text for text in texts if 'the test that would have caught it' in text).splitlines()
    return [line for line in lines if line.startswith('| ') and not line.startswith('| what was wrong')]


def test_every_test_that_the_page_names_is_there():
    "tutorials/what_it_survives: each row says which test would have caught it"
    rows = rows_of_the_table()
    assert len(rows) > 40
    for row in rows:
        named = re.findall(r'`([^`]+)`', row.split(' | ')[-1])
        assert named, row
        for name in named: assert is_there(name), name


@pytest.mark.parametrize('name', [
    'test_pages.py::test_of_no_file', 'test_nothing.py::test_every_test_that_the_page_names_is_there',
    'test_masks.py::test_every_test_that_the_page_names_is_there',  # which is in another file
    'test_pages.py::is_there', 'test_masks.py::grey',               # which are not tests
    'test_pages.py::', 'test_masks.py', 'make nothing', 'nbs/tutorials/nothing.ipynb', 'nbs/tutorials'])
def test_a_name_of_nothing_is_noticed(name):
    assert not is_there(name)
# def test_of_no_file(): a comment is not a test


def test_names_of_something_are_found():
    for name in 'test_pages.py::test_names_of_something_are_found', 'make test-cpus', 'nbs/50_commands.ipynb':
        assert is_there(name)
