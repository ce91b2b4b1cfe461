"""Do module, README and notebooks agree? Exits with 1 and a list when they do not.

Works on a copy, so a working tree with uncommitted changes is judged by what it holds and is left as it is."""
import filecmp
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNTRACKED = '__pycache__', '.ipynb_checkpoints', '.last_checked'


def files(folder):
    return {p.relative_to(folder) for p in folder.rglob('*') if p.is_file() and not {*UNTRACKED} & {*p.parts}}


def differing(a, b):
    "Files that are in one folder only, or differ"
    def same(p): return (a/p).is_file() and (b/p).is_file() and filecmp.cmp(a/p, b/p, shallow=False)
    return sorted(str(p) for p in files(a) | files(b) if not same(p))


def run(*command, cwd):
    program, *words = command
    subprocess.run([Path(sys.executable).parent/program, *words], cwd=cwd, check=True, stdout=subprocess.DEVNULL)


def main():
    wrong = []
    with tempfile.TemporaryDirectory() as tmp:
        copy = Path(tmp)/'copy'
        copy.mkdir()
        for name in ('settings.ini', 'README.md'): shutil.copy(ROOT/name, copy)
        for name in ('nbs', 'deepgp_fss', '.ci'):
            shutil.copytree(ROOT/name, copy/name, ignore=shutil.ignore_patterns(*UNTRACKED))
        run('nbdev_export', cwd=copy)
        if bad := differing(ROOT/'deepgp_fss', copy/'deepgp_fss'):
            wrong.append(f'nbdev_export changes {", ".join(bad)}: '
                         'run nbdev_export, and edit the notebook, not the module.')
        run('nbdev_clean', cwd=copy)
        if bad := differing(ROOT/'nbs', copy/'nbs'):
            wrong.append(f'nbdev_clean changes {", ".join(bad)}: run nbdev_clean.')
        run('python', '.ci/readme.py', cwd=copy)
        if not filecmp.cmp(ROOT/'README.md', copy/'README.md', shallow=False):
            wrong.append('README.md is not what nbs/index.ipynb says: run make readme.')
    for sentence in wrong: print(sentence, file=sys.stderr)
    if not wrong: print('module, README and notebooks agree')
    return bool(wrong)


if __name__ == '__main__': sys.exit(main())
