"Packaging metadata lives in settings.ini, which nbdev reads too; this file only hands it to setuptools."
import configparser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
parser = configparser.ConfigParser(delimiters=['='])
parser.read(here/'settings.ini', encoding='utf-8')
cfg = parser['DEFAULT']

extras = 'dev', 'bench', 'timm', 'tensorboard', 'browser'


def lines(key): return [line.strip() for line in cfg.get(key, '').splitlines() if line.strip()]

setup(
    name=cfg['lib_name'],
    version=cfg['version'],
    description=cfg['description'],
    long_description=(here/'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    author=cfg['author'],
    author_email=cfg['author_email'],
    url=cfg['git_url'],
    keywords=cfg['keywords'],
    license={'apache2': 'Apache-2.0'}[cfg['license']],
    packages=find_packages(include=[cfg['lib_path'], cfg['lib_path'] + '.*']),
    package_data={cfg['lib_path']: ['pretrained/*', 'pictures/**']},
    python_requires='>=' + cfg['min_python'],
    install_requires=cfg['requirements'].split(),
    extras_require={extra: cfg[f'{extra}_requirements'].split() for extra in extras},
    entry_points={
        'console_scripts': lines('console_scripts'),
        'nbdev': [f"{cfg['lib_path']}={cfg['lib_path']}._modidx:d"]},
    zip_safe=False)
