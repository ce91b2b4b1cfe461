"""The notebooks as a web site in _docs/, without quarto and without anything that a page would have to fetch.

nbdev's own documentation pass hides cells, documents what is exported and links `names`; here its result becomes HTML.
Formulas are MathML, pictures are inside the pages, and the source of every exported cell is there: open if it
defines a class or one of OPEN, otherwise folded. Pages stand in the order in which the index lists them
under "Read next", which is the reading order; a search box works from the disk as well. At the end every link within
the site is followed; exits with 1 and a list when one leads nowhere, a page needs the network, or the index forgets a
page."""
import ast
import base64
import html
import json
import mimetypes
import os
import re
import shutil
import sys
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

os.environ['IN_TEST'] = '1'  # as in nbdev_docs: no cell of a notebook exports

from execnb.nbio import read_nb
from latex2mathml.converter import convert
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbdev.config import get_config
from nbdev.doclinks import nbglob
from nbdev.processors import FilterDefaults, add_fold, insert_warning, mv_exports, rm_export
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

ROOT = Path(__file__).resolve().parent.parent
NBS, OUT = ROOT/'nbs', ROOT/'_docs'
DIRECTIVE = re.compile(r'^#\| *([\w-]+):? *(.*)\n?', re.M)
WIDGET = 'application/vnd.jupyter.widget-view+json'
REMOTE = re.compile(r'(https?:)?//')
REMOTE_SCRIPT = re.compile(r'https?:|\bfetch\(|XMLHttpRequest|import\(')
FETCH = r'@import|url\((?!["\']?data:)'
EXPORTED = {'export', 'exports', 'exporti'}
ATTRIBUTE = r'(<%s\b[^<>]*?\s%s=")([^"]*)(")'  # of a tag, in HTML where text has no raw < or >
SECTION = re.compile('<h2 id="(.*?)">(.*?)</h2>')
OPEN = {'train_loop', 'evaluate'}  # functions that their pages ask to read line by line
LIST_OF_PAGES = '## Read next'  # the cell of the index that lists all pages
SIMPLER = 'write it in simpler LaTeX.'

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><meta name="description" content="{description}">
<link rel="icon" href="data:,"><link rel="stylesheet" href="{up}style.css">
</head>
<body>
<header><a href="{up}index.html">{site}</a><a href="{repository}">repository</a>\
<a class="menu" href="#pages">all pages</a></header>
<main>
<h1>{heading}</h1>
{lead}{body}
<footer>{neighbours}<p>Made from <code>{notebook}</code>.</p></footer>
</main>
<nav id="pages" aria-label="pages">{nav}</nav>
<script src="{up}search.js" data-up="{up}"></script>
</body>
</html>
"""


# ---- from a notebook to HTML

def styled(match):
    "A letter in the Unicode block of its style: browsers know no other bold, script or blackboard letters in MathML"
    style, text = match[1].replace('-', ' ').replace('double struck', 'double-struck').upper(), html.unescape(match[2])

    def letter(c):
        name = re.sub('^(LATIN|GREEK) | LETTER', '', unicodedata.name(c))
        for full in (f'MATHEMATICAL {style} {name}', f'{style} {name}'):
            try: return unicodedata.lookup(full)
            except KeyError: pass
        return c
    return f'<mi>{"".join(map(letter, text))}</mi>'


def mathml(tex, display='inline'):
    number = re.search(r'\\tag\{(.*?)\}', tex)
    try: math = convert(tex.replace(number[0], '') if number else tex, display=display)
    except Exception as e:
        raise SystemExit(f'latex2mathml cannot read the formula {tex.strip()} ({type(e).__name__}): {SIMPLER}')
    if unknown := re.search(r'>(\\\w+)<', math):
        raise SystemExit(f'latex2mathml does not know {unknown[1]} in {tex.strip()}: {SIMPLER}')
    math = re.sub(r'<m[in] mathvariant="(bold|bold-italic|script|double-struck)">([^<]*)</m[in]>', styled, math)
    if display == 'inline': return math
    shown_number = f'<span>({number[1]})</span>' if number else ''
    return f'<span class="display">{math}{shown_number}</span>'


class Renderer(IPythonRenderer):
    def inline_math(self, body): return mathml(body)
    def block_math(self, body): return mathml(body, 'block')
    def latex_environment(self, name, body): return mathml(rf'\begin{{{name}}}{body}\end{{{name}}}', 'block')


def markdown(text): return MarkdownWithMath(Renderer(escape=False)).render(text)
def python(source): return highlight(source, PythonLexer(), HtmlFormatter())
def base64_of(data): return base64.b64encode(data).decode()
def picture(data, kind): return f'<img alt="what the code above draws" src="data:{kind};base64,{data}">'


def output(o):
    "The richest form of an output that needs neither a kernel nor a script"
    if o.output_type == 'stream': return f'<pre>{html.escape("".join(o.text))}</pre>'
    if o.output_type == 'error': return f'<pre>{html.escape(f"{o.ename}: {o.evalue}")}</pre>'
    data = {k: v if isinstance(v, dict) else ''.join(v) for k, v in o.data.items()}
    if 'text/html' in data: return data['text/html']
    if 'text/markdown' in data: return markdown(data['text/markdown'])
    if 'image/svg+xml' in data: return picture(base64_of(data['image/svg+xml'].encode()), 'image/svg+xml')
    for kind in ('image/png', 'image/jpeg'):
        if kind in data: return picture(data[kind].replace('\n', ''), kind)
    return '' if WIDGET in data else f'<pre>{html.escape(data.get("text/plain", ""))}</pre>'


def screenshot(name):
    "A live widget, as `make test-browser` saw it"
    path = NBS.parent/f'figures/{name}.png'
    return picture(base64_of(path.read_bytes()), 'image/png') if path.exists() else ''


def defined(source):
    "Names that a cell defines at top level, and the methods of its classes"
    tops, methods = [], []
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)): tops.append(node.name)
        if isinstance(node, ast.Assign): tops += [t.id for t in node.targets if isinstance(t, ast.Name)]
        if isinstance(node, ast.ClassDef):
            methods += [f'{node.name}.{m.name}' for m in node.body if isinstance(m, ast.FunctionDef)]
    return tops, methods


def signatures(cells):
    "name -> how each function of the module begins in the source, with its comments; classes show their whole source"
    found = {}
    for source in (c.source for c in cells if getattr(c, 'directives_', {}).keys() & EXPORTED):
        lines = source.splitlines()
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef): found[node.name] = ''
            if not isinstance(node, ast.FunctionDef): continue
            first, body = node.lineno - 1, node.body[0]
            if body.lineno - 1 == first: begin = lines[first][:body.col_offset].rstrip()
            else: begin = '\n'.join(lines[first:body.lineno - 1])
            found[node.name] = f'```python\n{begin}\n```'
    return found


def documented(text, begins):
    "Output of `show_doc` with the anchor that nbdev's links expect, without the link to GitHub: the source is below"
    def heading(match): return f'<h3 class="doc" id="{match[1].lower()}">{html.escape(match[1])}</h3>'
    def call(match): return begins.get(re.search(r'def (\w+)', match[0])[1], match[0])
    text = re.sub(r'\A---\n|\[source\]\([^)]*\)\{[^}]*\}\n|^\*Call self as a function\.\*$', '', text, flags=re.M)
    text = re.sub(r'^```python\ndef .*?^```', call, text, count=1, flags=re.M | re.S)
    return re.sub(r'^### (.+)$', heading, text, count=1, flags=re.M)


def code(cell, begins):
    options, source = dict(DIRECTIVE.findall(cell.source)), DIRECTIVE.sub('', cell.source).strip()
    if options.get('include') == 'false': return ''
    if cell.directives_.keys() & EXPORTED:
        tops, methods = defined(source)
        if not tops: return ''  # imports
        anchors = ''.join(f'<a id="{n.lower()}"></a>' for n in tops + methods)
        is_open = re.search(r'^class ', source, re.M) or OPEN & {*tops}
        summary = f'<summary>Source of {", ".join(dict.fromkeys(tops))}</summary>'
        return f'{anchors}<details{" open" if is_open else ""}>{summary}{python(source)}</details>'
    if source.startswith('show_doc('):
        for o in cell.outputs: o.data['text/markdown'] = documented(''.join(o.data['text/markdown']), begins)
    shown = '' if options.get('echo') == 'false' or not source else python(source)
    made = ''.join(output(o) for o in cell.outputs) if options.get('output') != 'false' else ''
    if widget := re.search(r'^(\w+_widget)\(.*\)\Z', source, re.M): made += screenshot(widget[1])
    return shown + (made if options.get('output') == 'asis' else f'<div class="output">{made}</div>' if made else '')


def rm_hidden(cell):
    "Like nbdev's `rm_export`, but exported cells stay: they are for readers as well"
    if cell.directives_.keys() & {'hide', 'default_exp'}: del cell['source']


class Docs(FilterDefaults):
    def base_procs(self):
        kept = [p for p in super().base_procs() if p not in (insert_warning, add_fold, mv_exports)]
        return [rm_hidden if p is rm_export else p for p in kept]


class Page:
    def __init__(self, path):
        nb = read_nb(path)
        Docs()(nb)
        about = nb.frontmatter_
        self.path, self.title, self.lead = path, about.get('title', path.stem), about.get('description', '')
        self.file = path.relative_to(NBS).with_name(about.get('output-file', f'{path.stem}.html'))
        self.number = (re.match(r'\d+[a-z]?(?=_)', path.name) or [''])[0]
        cells, source, seen = [], 0, {'pages'}
        for cell in nb.cells:  # nbdev puts documentation behind the cell that defines the names, the last name first
            if getattr(cell, 'has_sd', False): cells.insert(source, cell)
            else: source = len(cells); cells.append(cell)

        begins = signatures(nb.cells)

        def once(match):
            if match[2] in seen: return match[1].removesuffix(' id="')
            seen.add(match[2])
            return match[0]
        shown = [markdown(c.source) if c.cell_type == 'markdown' else code(c, begins)
                 for c in cells if c.cell_type != 'raw']
        self.body = re.sub(ATTRIBUTE % (r'\w+', 'id'), once, '\n'.join(shown))
        self.sections = [(anchor, re.sub('<a class="anchor-link".*|<.*?>', '', heading))
                         for anchor, heading in SECTION.findall(self.body)]


# ---- from pages to a site

def relative(target, page): return Path(os.path.relpath(target, page.file.parent)).as_posix()


def settle(page, files, cfg):
    "Links to notebooks become links to pages, links to other files lead to the repository, and pictures move in"
    site = f'{cfg.doc_host}{cfg.doc_baseurl}/'

    def link(match):
        url, anchor = urldefrag(html.unescape(match[2]))
        target = (page.path.parent/unquote(url)).resolve()
        if url.startswith(site): url = relative(url.removeprefix(site), page)
        elif not url or re.match(r'\w+:|/', url): return match[0]
        elif target in files: url = relative(files[target], page)
        elif target.is_relative_to(ROOT) and target.exists():
            url = f'{cfg.git_url}/blob/{cfg.branch}/{target.relative_to(ROOT).as_posix()}'
        return match[1] + html.escape(url + (f'#{anchor}' if anchor else '')) + match[3]

    def inside(match):
        file = page.path.parent/unquote(match[2])
        if match[2].startswith('data:') or REMOTE.match(match[2]) or not file.is_file(): return match[0]
        kind = mimetypes.guess_type(file.name)[0]
        return f'{match[1]}data:{kind};base64,{base64_of(file.read_bytes())}{match[3]}'
    page.body = re.sub(ATTRIBUTE % ('img', 'src'), inside, re.sub(ATTRIBUTE % ('a', 'href'), link, page.body))


def reading_order(index):
    "Notebooks in the order in which the index lists them"
    cells = [''.join(c['source']) for c in json.loads(index.read_text(encoding='utf-8'))['cells']]
    lists = '\n'.join(text.partition(LIST_OF_PAGES)[2] for text in cells)
    return list(dict.fromkeys((index.parent/m[1]).resolve() for m in re.finditer(r'\]\(([\w./-]+\.ipynb)\)', lists)))


def contents(pages, here):
    "All pages in reading order, room by room, with the sections of this one"
    lines, room = [], Path()
    for p in pages:
        if p.file.parent != room:
            room = p.file.parent
            heading = f'<h2>{html.escape(room.name.capitalize())}</h2>' if room.name else ''
            lines.append(f'</ul>{heading}<ul>')
        current = 'aria-current=page ' if p is here else ''
        link = f'<a {current}href="{relative(p.file, here)}"><span>{p.number}</span> {html.escape(p.title)}</a>'
        sections = ''.join(f'<li><a href="#{i}">{t}</a></li>' for i, t in p.sections) if p is here else ''
        lines.append(f'<li>{link}{f"<ul>{sections}</ul>" if sections else ""}</li>')
    return '<ul>' + '\n'.join(lines) + '</ul>'


def entries(page):
    "What the search box finds of a page: [address, page, section, names defined there, words of the text] by section"
    parts = re.split(r'(?=<h2 id=")', page.body)
    sections = [('', ''), *page.sections] if not parts[0].startswith('<h2 ') else page.sections
    for part, (anchor, title) in zip(parts, sections):
        names = [name for names in re.findall('<summary>Source of (.*?)</summary>', part) for name in names.split(', ')]
        prose = re.sub('<(details|pre|math|div class="output")\\b.*?</(details|pre|math|div)>', ' ', part, flags=re.S)
        text = html.unescape(re.sub('<[^>]*>', ' ', prose)).lower()
        words = ' '.join(sorted({w for w in re.findall(r'[a-z0-9_]{3,}', text)}))
        address = page.file.as_posix() + (f'#{anchor}' if anchor else '')
        yield [address, page.title, html.unescape(title), ' '.join(names), words if title else f'{page.lead} {words}']


def neighbours(pages, i):
    "Links to the page before and the page behind"
    here, links = pages[i], []
    for rel, words, j in (('prev', '← {}', i - 1), ('next', '{} →', i + 1)):
        if 0 <= j < len(pages):
            title, address = html.escape(pages[j].title), relative(pages[j].file, here)
            links.append(f'<a rel="{rel}" href="{address}">{words.format(title)}</a>')
    return ''.join(links)


def write(pages, cfg):
    shutil.rmtree(OUT, ignore_errors=True)
    for i, p in enumerate(pages):
        text = PAGE.format(
            title=html.escape(p.title if p.title == cfg.title else f'{p.title} · {cfg.title}'),
            description=html.escape(p.lead), up='../'*len(p.file.parts[1:]), repository=cfg.git_url,
            site=html.escape(cfg.title), heading=html.escape(p.title), body=p.body,
            lead=f'<p class="lead">{html.escape(p.lead)}</p>\n' if p.lead else '', neighbours=neighbours(pages, i),
            notebook=p.path.relative_to(ROOT).as_posix(), nav=contents(pages, p))
        (OUT/p.file).parent.mkdir(parents=True, exist_ok=True)
        (OUT/p.file).write_text(text, encoding='utf-8')
    style = (ROOT/'.ci/docs.css').read_text() + HtmlFormatter(style='xcode').get_style_defs('.highlight')
    (OUT/'style.css').write_text(style, encoding='utf-8')
    shutil.copy(ROOT/'.ci/search.js', OUT)
    index = json.dumps([entry for p in pages for entry in entries(p)], ensure_ascii=False, separators=(',', ':'))
    (OUT/'words.js').write_text(f'window.searchWords = {index};\n', encoding='utf-8')


class Reader(HTMLParser):
    "Ids and addresses of a page, as a browser would find them"
    def __init__(self, file):
        super().__init__()
        self.ids, self.addresses, self.styles = set(), [], ''
        self.feed(file.read_text(encoding='utf-8'))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if 'id' in attrs: self.ids.add(attrs['id'])
        self.styles += attrs.get('style') or ''
        self.addresses += [(tag, attrs[k]) for k in ('href', 'src', 'srcset', 'poster', 'data') if attrs.get(k)]

    def handle_data(self, data):
        if self.cdata_elem == 'style': self.styles += data


def check(pages):
    "What is wrong with the site as it lies on the disk, in sentences, and the number of links in it"
    read, wrong, links = {OUT/p.file: Reader(OUT/p.file) for p in pages}, [], 0
    for page in pages:
        name, here = f'{page.file} (from {page.path.relative_to(ROOT)})', read[OUT/page.file]
        for tag, address in here.addresses:
            if REMOTE.match(address):
                if tag != 'a': wrong.append(f'{name} fetches <{tag}> from {address}: keep a copy in the project.')
            elif not re.match(r'\w+:', address):
                url, anchor = urldefrag(address)
                links += 1
                target = Path(os.path.normpath(OUT/page.file.parent/unquote(url))) if url else OUT/page.file
                if not target.is_file(): wrong.append(f'{name} points to {address}, and there is no such file.')
                elif anchor and target in read and not {anchor, unquote(anchor)} & read[target].ids:
                    wrong.append(f'{name} points to {address}, and that page has no such anchor.')
        if re.search(FETCH, here.styles): wrong.append(f'{name} has a style that fetches something.')
    if re.search(FETCH, (OUT/'style.css').read_text(encoding='utf-8')): wrong.append('style.css fetches something.')
    if REMOTE_SCRIPT.search((OUT/"search.js").read_text(encoding="utf-8")): wrong.append("search.js fetches something.")
    return wrong, links


def main():
    os.chdir(ROOT)
    cfg = get_config()
    index = NBS/cfg.readme_nb
    order = [index, *reading_order(index)]
    notebooks = {Path(p).resolve() for p in nbglob()}
    forgotten = [p.relative_to(ROOT).as_posix() for p in sorted(notebooks - set(order))]
    pages = [Page(p) for p in order if p in notebooks] + [Page(ROOT/p) for p in forgotten]
    files = {p.path: p.file for p in pages}
    if len(set(files.values())) < len(files):
        raise SystemExit('Two notebooks make the same page: ' + ', '.join(sorted(map(str, files.values()))))
    for p in pages: settle(p, files, cfg)
    write(pages, cfg)
    wrong, links = check(pages)
    wrong += [f'nbs/{cfg.readme_nb} does not list {p} under "{LIST_OF_PAGES}".' for p in forgotten]
    for sentence in wrong: print(sentence, file=sys.stderr)
    print(f'{len(pages)} pages in {OUT.relative_to(ROOT)}/, {links} links followed, {len(wrong)} things wrong')
    return bool(wrong)


if __name__ == '__main__': sys.exit(main())
