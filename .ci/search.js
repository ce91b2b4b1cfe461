// A search box over the words of all pages, without a server: the index is a script that lies beside the pages, so it
// works from the disk as well. Without scripts there is no box, and nothing else is missing.
(() => {
  const up = document.currentScript.dataset.up;
  const box = document.createElement('div'), input = document.createElement('input'), found = document.createElement('ul');
  box.className = 'search';
  Object.assign(input, {type: 'search', placeholder: 'search', autocomplete: 'off'});
  input.setAttribute('aria-label', 'search all pages');
  found.hidden = true;
  found.setAttribute('aria-live', 'polite');
  box.append(input, found);
  document.querySelector('header').children[0].after(box);

  let asked_for = false;
  const load = () => {  // once, when it is first needed
    if (asked_for) return;
    asked_for = true;
    const script = Object.assign(document.createElement('script'), {src: up + 'words.js'});
    script.onload = show;
    document.head.append(script);
  };

  // entries of the index: [address, page, section, names that are defined there, words of the text]
  const weights = [0, 12, 8, 6, 1];
  const score = (entry, asked) => {
    let sum = 0;
    for (const word of asked) {
      let best = 0;
      for (let i = 1; i < entry.length; i++) {
        const text = ' ' + entry[i].toLowerCase(), at = text.search(new RegExp('[^a-z0-9]' + word));
        if (at < 0) continue;
        const whole = new RegExp('[^a-z0-9]' + word + '(?![a-z0-9])').test(text);
        best = Math.max(best, weights[i] * (whole ? 2 : 1));
      }
      if (!best) return 0;  // every word has to occur
      sum += best;
    }
    return sum;
  };

  const show = () => {
    const asked = input.value.toLowerCase().split(/[^a-z0-9_]+/).filter(Boolean);
    found.hidden = !asked.length || !window.searchWords;
    if (found.hidden) return;
    const hits = searchWords.map(entry => [score(entry, asked), entry]).filter(hit => hit[0]);
    hits.sort((a, b) => b[0] - a[0]);
    found.replaceChildren(...hits.slice(0, 12).map(([, [address, page, section]]) => {
      const item = document.createElement('li'), link = document.createElement('a');
      link.href = up + address;
      link.append(page);
      if (section) link.append(Object.assign(document.createElement('small'), {textContent: section}));
      item.append(link);
      return item;
    }));
    if (!hits.length) found.append(Object.assign(document.createElement('li'), {textContent: 'No page has these words.'}));
  };

  const close = () => { found.hidden = true; };
  input.addEventListener('focus', load);
  input.addEventListener('input', () => { load(); show(); });
  document.addEventListener('click', e => { if (!box.contains(e.target)) close(); else if (e.target === input) show(); });
  found.addEventListener('click', close);
  document.addEventListener('keydown', e => {
    const typing = /INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName);
    if (e.key === '/' && !typing && !e.ctrlKey && !e.metaKey) { e.preventDefault(); input.focus(); }
    if (!box.contains(document.activeElement)) return;
    const stops = [input, ...found.querySelectorAll('a')], here = stops.indexOf(document.activeElement);
    if (e.key === 'Escape') { close(); input.focus(); }
    if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
      e.preventDefault();
      stops[(here + (e.key === 'ArrowDown' ? 1 : stops.length - 1)) % stops.length].focus();
    }
    if (e.key === 'Enter' && document.activeElement === input && stops[1]) stops[1].click();
  });
})();
