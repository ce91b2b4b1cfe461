"""Who imports whom: prints the modules room by room, and exits with 1 if one imports a later one.

The notebook that defines a module has a number, and numbers are in reading order. So a module may import those with
lower numbers only, and the whole package can be read, and understood, from the first page to the last."""
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT/'deepgp_fss'


def imported(source):
    "Modules of the package that a module imports, at its top or inside its functions"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            name = node.module or ''
            if node.level == 0 and name.startswith('deepgp_fss.'): yield name.split('.')[1]
            elif node.level == 1: yield name.split('.')[0]


def modules():
    "name -> (room, number, sorted names of what it imports)"
    found = {}
    for path in PACKAGE.glob('*.py'):
        source = path.read_text(encoding='utf-8')
        home = re.search(r'File to edit: \.\./nbs/(?:(\w+)/)?(\d+)_\w+\.ipynb', source)
        if home: found[path.stem] = home[1] or 'nbs', int(home[2]), set(imported(source))
    return found


def main():
    known, wrong, room = modules(), [], None
    for name, (where, number, needs) in sorted(known.items(), key=lambda item: item[1][1]):
        if where != room: print(f'{where}/'); room = where
        order = sorted(needs, key=lambda other: known[other][1])
        print(f'  {number:02} {name:14} {"<- " if order else ""}{", ".join(order)}')
        wrong += [f'{name} ({where}, {number:02}) imports {other}, which comes later ({known[other][1]:02}).'
                  for other in order if known[other][1] >= number]
    for sentence in wrong: print(sentence, file=sys.stderr)
    return bool(wrong)


if __name__ == '__main__': sys.exit(main())
