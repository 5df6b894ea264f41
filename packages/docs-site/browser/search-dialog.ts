/** The search: a dialog with a field and a list. The index is loaded when it is first opened. */
import MiniSearch, { type SearchResult } from 'minisearch';
import { INDEX_OPTIONS, SEARCH_OPTIONS, type SearchEntry } from '../src/search/index-options.ts';

const MAX_RESULTS = 12;
const LOAD_DEADLINE_MS = 30_000;
const KINDS: Readonly<Record<string, string>> = {
  guides: 'Guide',
  api: 'API',
  reference: 'Reference',
  internals: 'Internals',
};

export function addSearch(): void {
  const dialog = document.querySelector<HTMLDialogElement>('#search');
  if (dialog === null) return;
  const search = new SearchDialog(dialog);
  for (const button of document.querySelectorAll<HTMLButtonElement>('[data-open-search]')) {
    button.hidden = false;
    button.addEventListener('click', () => search.open());
  }
  document.addEventListener('keydown', (event) => {
    const isShortcut = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k';
    if (!isShortcut && (event.key !== '/' || isTyping(event.target))) return;
    event.preventDefault();
    search.open();
  });
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && target.closest('input, textarea, select, [contenteditable]') !== null
  );
}

class SearchDialog {
  readonly #dialog: HTMLDialogElement;
  readonly #input: HTMLInputElement;
  readonly #list: HTMLElement;
  readonly #state: HTMLElement;
  #index: Promise<MiniSearch<SearchEntry>> | undefined;
  #selected = 0;

  constructor(dialog: HTMLDialogElement) {
    this.#dialog = dialog;
    this.#input = find(dialog, 'input') as HTMLInputElement;
    this.#list = find(dialog, '[role=listbox]');
    this.#state = find(dialog, '[role=status]');
    this.#input.addEventListener('input', () => void this.#show());
    this.#input.addEventListener('keydown', (event) => this.#press(event));
    dialog.addEventListener('click', (event) => {
      if (event.target === dialog) dialog.close();
    });
  }

  open(): void {
    if (!this.#dialog.open) this.#dialog.showModal();
    this.#input.select();
    void this.#show();
  }

  async #show(): Promise<void> {
    const words = this.#input.value.trim();
    let index: MiniSearch<SearchEntry>;
    try {
      this.#index ??= loadIndex();
      index = await this.#index;
    } catch (error) {
      this.#index = undefined;
      this.#state.textContent = `The search index could not be loaded (${String(error)}). Try again.`;
      return;
    }
    if (words !== this.#input.value.trim()) return;
    this.#render(words === '' ? [] : findResults(index, words), words);
  }

  #render(results: readonly SearchResult[], words: string): void {
    this.#list.replaceChildren(...results.map((result, index) => buildOption(result, index)));
    this.#select(0);
    this.#state.textContent =
      words === ''
        ? 'Type to search.'
        : results.length === 0
          ? `Nothing found for “${words}”.`
          : `${results.length} results. Move with the arrow keys, open with Enter.`;
  }

  #select(index: number): void {
    const options = [...this.#list.children];
    this.#selected = Math.max(0, Math.min(index, options.length - 1));
    for (const [each, option] of options.entries())
      option.setAttribute('aria-selected', String(each === this.#selected));
    const option = options[this.#selected];
    option?.scrollIntoView({ block: 'nearest' });
    if (option === undefined) this.#input.removeAttribute('aria-activedescendant');
    else this.#input.setAttribute('aria-activedescendant', option.id);
  }

  #press(event: KeyboardEvent): void {
    if (event.key === 'ArrowDown') this.#select(this.#selected + 1);
    else if (event.key === 'ArrowUp') this.#select(this.#selected - 1);
    // A field of type "search" would only clear itself, and the dialog would stay.
    else if (event.key === 'Escape') this.#dialog.close();
    else if (event.key === 'Enter')
      this.#list.querySelectorAll<HTMLAnchorElement>('a')[this.#selected]?.click();
    else return;
    event.preventDefault();
  }
}

function find(parent: ParentNode, selector: string): HTMLElement {
  const element = parent.querySelector<HTMLElement>(selector);
  if (element === null) throw new Error(`the page has no ${selector}`);
  return element;
}

async function loadIndex(): Promise<MiniSearch<SearchEntry>> {
  const address = document.documentElement.dataset['index'] ?? '';
  const response = await fetch(address, { signal: AbortSignal.timeout(LOAD_DEADLINE_MS) });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return MiniSearch.loadJSONAsync<SearchEntry>(await response.text(), INDEX_OPTIONS);
}

/** Finds sections with all words, or, if there is none, with any. */
function findResults(index: MiniSearch<SearchEntry>, words: string): SearchResult[] {
  const all = index.search(words, SEARCH_OPTIONS);
  const found = all.length > 0 ? all : index.search(words, { ...SEARCH_OPTIONS, combineWith: 'OR' });
  return found.slice(0, MAX_RESULTS);
}

/** Only text is put into the page, never markup. */
function buildOption(result: SearchResult, index: number): HTMLAnchorElement {
  const link = document.createElement('a');
  link.id = `search-result-${index}`;
  link.role = 'option';
  link.href = String(result['url']);
  link.tabIndex = -1;
  link.append(
    text('span', 'kind', KINDS[String(result['kind'])] ?? ''),
    text('strong', 'title', String(result['title'])),
    text('span', 'page', result['page'] === result['title'] ? '' : String(result['page'])),
    text('span', 'excerpt', String(result['excerpt'])),
  );
  link.addEventListener('click', () => link.closest('dialog')?.close());
  return link;
}

function text(tag: 'span' | 'strong', name: string, content: string): HTMLElement {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = content;
  return element;
}
