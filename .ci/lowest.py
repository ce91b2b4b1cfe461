"The oldest versions that settings.ini allows, as constraints for pip (`make test-lowest`): `name==version` lines"
import configparser
import re
from pathlib import Path

settings = configparser.ConfigParser(delimiters=['='])
settings.read(Path(__file__).resolve().parent.parent/'settings.ini')
for part in ('requirements', 'dev_requirements', 'timm_requirements', 'tensorboard_requirements', 'bench_requirements'):
    for requirement in settings['DEFAULT'][part].split():
        name, version = re.match(r'([\w.-]+)>=([\d.]+)', requirement).groups()
        print(f'{name}=={version}')
