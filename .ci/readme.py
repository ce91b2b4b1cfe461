"""README.md from nbs/index.ipynb, without quarto: the same cells and outputs, as Markdown that GitHub shows."""
import re
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parent.parent
DIRECTIVE = re.compile(r'^#\| *([\w-]+):? *(.*)\n?', re.M)


def visible(cell):
    "Is this cell for readers?"
    if cell.cell_type != 'code': return cell.cell_type == 'markdown'
    return 'hide' not in dict(DIRECTIVE.findall(cell.source))


def from_root(source):
    "Links of a notebook in nbs/, seen from the root"
    return re.sub(r'\]\((?!https?:|#|/)(\.\./)?', lambda m: '](' + ('' if m[1] else 'nbs/'), source)


def main():
    nb = nbformat.read(ROOT/'nbs'/'index.ipynb', as_version=4)
    nb.cells, nb.metadata = [c for c in nb.cells if visible(c)], {'language_info': {'name': 'python'}}
    for cell in nb.cells:
        if cell.cell_type == 'code': cell.source = DIRECTIVE.sub('', cell.source)
        cell.source = from_root(cell.source)
    text, resources = MarkdownExporter().from_notebook_node(nb)
    if resources['outputs']:
        raise SystemExit('index.ipynb shows a figure from a cell: '
                         'save it to figures/ and link it, so that README.md can show it.')
    text = re.sub(r'\n{3,}', '\n\n', text).strip()
    note = '<!-- Made from nbs/index.ipynb by `make readme`. Edit that, not this. -->'
    (ROOT/'README.md').write_text(f'{note}\n\n{text}\n')


if __name__ == '__main__': main()
