"Every door of the package: a module each (or for a few that are alike), which adds its cases to `CASES`"
from importlib import import_module

DOORS = (
    'images', 'support', 'arrays', 'data_files', 'lists', 'roots', 'coco', 'checkpoints', 'weights', 'surroundings',
    'runs', 'results', 'configurations', 'train', 'evaluate', 'segment', 'data', 'bench', 'study_and_demo')
for door in DOORS: import_module(f'{__name__}.{door}')
