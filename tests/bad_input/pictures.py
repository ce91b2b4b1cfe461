"Pictures and files, whole and damaged"
import io
import os
import resource
import shutil
import struct
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from harness import as_anybody
from PIL import Image


def scene(seed=0, height=64, width=64, label=1):
    "A coloured box before a noisy ground: image (H, W, 3) and mask (H, W), uint8"
    rng = np.random.default_rng([seed, 7])
    image, mask = rng.integers(90, 160, (height, width, 3)).astype(np.uint8), np.zeros((height, width), np.uint8)
    box = np.s_[height//8:max(1, 5*height//8), width//4:max(1, 3*width//4)]
    image[box], mask[box] = np.random.default_rng(label).integers(0, 256, 3), label
    return image, mask


def photo(seed=5, height=48, width=64): return Image.fromarray(scene(seed, height, width)[0])


def encoded(image, kind, **how):
    "The bytes of a picture"
    buffer = io.BytesIO()
    image.save(buffer, kind, **how)
    return buffer.getvalue()


def write(path, content):
    "Bytes, text or a picture (in the format of the name's ending) into a file"
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, np.ndarray): content = Image.fromarray(content)
    if isinstance(content, Image.Image): content.save(path)
    elif isinstance(content, str): path.write_text(content, encoding='utf-8')
    else: path.write_bytes(content)
    return path


def chunk(name, data): return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))


def png(width, height, depth, colours, rows, *more):
    "A PNG, chunk by chunk: colours 0 is grey, 2 RGB; rows are bytes, with the filter in front"
    head = struct.pack('>IIBBBBB', width, height, depth, colours, 0, 0, 0)
    chunks = (b'IHDR', head), *more, (b'IDAT', zlib.compress(rows)), (b'IEND', b'')
    return b'\x89PNG\r\n\x1a\n' + b''.join(chunk(*c) for c in chunks)


def changed(data, at, by):
    "Bytes with some of them replaced"
    return data[:at] + by + data[at + len(by):]


def turned(orientation):
    exif = Image.Exif()
    exif[0x112] = orientation
    return exif


@contextmanager
def without_rights(path, mode=0):
    "Take the rights to a file or folder away, from root as well"
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        with as_anybody(): yield
    finally: path.chmod(before)


@contextmanager
def little_memory(more=3 * 2**30):
    "At most 3 GB more than now, so that a bomb harms nobody"
    used = int(Path('/proc/self/statm').read_text().split()[0])*os.sysconf('SC_PAGE_SIZE')
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + more, before[1]))
    try: yield
    finally: resource.setrlimit(resource.RLIMIT_AS, before)


class Evil:
    "Leaves a file behind when it is unpickled"
    def __init__(self, marker): self.marker = str(marker)
    def __reduce__(self): return open, (self.marker, 'w')


def harmless(at, do):
    "Do something with a file that would leave a marker behind if it were executed"
    try: return do()
    finally: assert not (at/'executed').exists(), 'what is in the file was executed'


def frames(*size): return dict(save_all=True, append_images=[photo(6, *size), photo(7, *size)])
def becomes(path, make): path.unlink(); make(path)


def emptied(folder):
    for p in folder.iterdir(): shutil.rmtree(p) if p.is_dir() else p.unlink()


PROGRAM = b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n'  # PostScript
JPEG, PNG = encoded(photo(), 'JPEG'), encoded(photo(), 'PNG')
MASK = scene(1)[1]  # of a photograph of the support set
DRAWN = scene(3, 40, 48, 4)[1]  # a label map of the data set `folder`
MINE = 'my.safetensors'
