"""Execute notebooks in place and keep their outputs, skipping the cells that nbdev skips.

usage: python .ci/notebooks.py [nbs/method/10_kernels.ipynb ...]      without arguments: all of them

Widget views and live progress are dropped, because they change with every run; so a second run gives no diff. Pictures
are stored at 100 dpi with 256 colours: readable, and small enough to commit."""
import base64
import io
import os
import sys
from pathlib import Path

os.environ.setdefault('TQDM_DISABLE', '1')

from execnb.nbio import write_nb
from execnb.shell import CaptureShell
from fastcore.xtras import working_directory
from nbdev.config import get_config
from nbdev.doclinks import nbglob
from nbdev.process import NBProcessor
from PIL import Image

WIDGET = 'application/vnd.jupyter.widget-view+json'


def compact(png):
    "The same picture (base64) with a palette of 256 colours"
    image, small = Image.open(io.BytesIO(base64.b64decode(''.join(png)))), io.BytesIO()
    image.convert('RGB').quantize(256, dither=Image.Dither.NONE).save(small, 'png', optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def run(path):
    path, flags = Path(path).resolve(), set(get_config().tst_flags.split())
    nb = NBProcessor(path, rm_directives=False, process=True).nb

    def skipped(cell):
        if cell.cell_type != 'code': return True
        return cell.directives_.get('eval:', [''])[0].lower() == 'false' or bool(flags & cell.directives_.keys())

    for cell in nb.cells:
        if not skipped(cell): cell.outputs = []  # execnb keeps the old output of a cell that has none any more
    shell = CaptureShell(path, mpl_format='png')
    with working_directory(path.parent): shell.run_all(nb, exc_stop=True, preproc=skipped)
    for cell in nb.cells:
        cell.pop('directives_', None)
        if 'outputs' not in cell: continue
        cell.outputs = [o for o in cell.outputs if WIDGET not in o.get('data', {})]
        for data in (o.get('data', {}) for o in cell.outputs):
            if 'image/png' in data: data['image/png'] = compact(data['image/png'])
    write_nb(nb, path)
    print('ran', path.name, flush=True)


if __name__ == '__main__':
    for p in sys.argv[1:] or sorted(nbglob()): run(p)
