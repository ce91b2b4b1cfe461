"Results of tests that the docs show: written to the folder $DEEPGP_RESULTS, if it is set"
import fcntl
import json
import os
from pathlib import Path


def keep(file, name, result):
    "Put `result` under `name` into a JSON file; several processes may do so, one after the other"
    if not (folder := os.environ.get('DEEPGP_RESULTS')): return
    with open(Path(folder)/file, 'a+') as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        known = json.loads(f.read() or '{}') | {name: result}
        f.seek(0); f.truncate()
        lines = [f'{json.dumps(k)}: {json.dumps(known[k], separators=(",", ":"))}' for k in sorted(known)]
        f.write('{\n' + ',\n'.join(lines) + '\n}\n')
