/** Finds the files of a context that a source of COPY names. Symbolic links of the source itself are followed within the context. */
import { AppError } from '@coppice/contract';
import { MAX_DEPTH, MAX_ENTRIES, type ContextIndex } from './context-index.ts';
import { Pacer } from './pacer.ts';
import { SearchBudget } from './search-budget.ts';

/** As the kernel. */
const MAX_HOPS = 40;
/** Names on the way of all links of a source together. */
const MAX_FOLLOWED_NAMES = 1_000_000;
/** Links can name a file many times. */
const MAX_SELECTED_BYTES = 2 ** 30;

export interface Selection {
  /** Files that were named themselves; then their names are in the target. */
  files: number;
  /** Their numbers in the index. */
  named: number[];
  /** Whether a directory was named, whose content is copied. */
  hasDirectory: boolean;
  /** Numbers in the index, and paths in the target. */
  entries: { number: number; path: string }[];
}

interface Work {
  pacer: Pacer;
  budget: SearchBudget;
}

/** A path of the context that is copied, with the names under which it was named. */
type Roots = Map<string, Set<string>>;

/**
 * Finds what a source names. `*` and `?` stand for characters of one name. As in Docker, the content of a directory is copied, and
 * the target of a link; but links in a directory stay links. Throws `build_failed` if there is nothing; a pattern may match nothing.
 */
export async function selectFiles(
  index: ContextIndex,
  source: string,
  signal: AbortSignal,
  budget = new SearchBudget(),
): Promise<Selection> {
  const pacer = new Pacer(signal);
  const wanted = readPattern(source);
  const firstPattern = wanted.findIndex((component) => /[*?]/u.test(component));
  const fixed = firstPattern === -1 ? wanted : wanted.slice(0, firstPattern);
  const links = new Links(index.hasLinks ? await readLinks(index, { pacer, budget }) : new Map(), {
    source,
    pacer,
    budget,
  });
  const base = await links.follow(fixed);
  const roots: Roots =
    firstPattern === -1
      ? new Map([[base.join('/'), new Set([wanted.at(-1) ?? ''])]])
      : await findRoots(index, { base, patterns: wanted.slice(firstPattern), links, pacer, budget });
  const { found, selection } = await collect(index, { roots, source, pacer, budget });
  for (const [path, names] of roots)
    if (path !== '' && !found.has(path)) throw missing(source, describeLink(path, names));
  return { ...selection, hasDirectory: selection.hasDirectory || roots.has('') };
}

export function missing(source: string, why = ''): AppError {
  return new AppError(
    'build_failed',
    `the context has no ${JSON.stringify(source)}${why}; check the path, and whether .dockerignore leaves it out`,
  );
}

function readPattern(source: string): string[] {
  const components: string[] = [];
  for (const component of source.split('/')) {
    if (component === '' || component === '.') continue;
    if (component === '..') components.pop();
    // Names of an archive are bytes, one character each.
    else components.push(Buffer.from(component).toString('latin1'));
  }
  return components;
}

/** Targets of the symbolic links. */
async function readLinks(index: ContextIndex, { pacer, budget }: Work): Promise<ReadonlyMap<string, string>> {
  const links = new Map<string, string>();
  for (let number = 0; number < index.length; number += 1) {
    await pacer.pause();
    const path = index.path(number);
    budget.spend(path.length + 1);
    if (index.type(number) === 'symlink') links.set(path, index.entry(number).target);
    // The last entry with a name is the one that counts.
    else if (links.size > 0) links.delete(path);
  }
  return links;
}

class Links {
  readonly #targets: ReadonlyMap<string, string>;
  readonly #source: string;
  readonly #pacer: Pacer;
  readonly #budget: SearchBudget;
  #followed = 0;

  constructor(targets: ReadonlyMap<string, string>, { source, pacer, budget }: Work & { source: string }) {
    this.#budget = budget;
    this.#targets = targets;
    this.#source = source;
    this.#pacer = pacer;
  }

  has(path: string): boolean {
    return this.#targets.has(path);
  }

  /**
   * Resolves a path. The root of the context is that of absolute targets, and nothing is above it. Throws `build_failed` after too
   * many links.
   */
  async follow(components: readonly string[]): Promise<string[]> {
    if (this.#targets.size === 0) return [...components];
    const done: string[] = [];
    const left = components.toReversed();
    for (let hops = 0, next = left.pop(); next !== undefined; next = left.pop()) {
      await this.#pacer.pause();
      this.#followed += 1;
      if (next === '..') done.pop();
      if (next === '' || next === '.' || next === '..') continue;
      done.push(next);
      const path = done.join('/');
      this.#budget.spend(path.length + 1);
      const target = this.#targets.get(path);
      if (target !== undefined) {
        hops += 1;
        if (target.startsWith('/')) done.length = 0;
        else done.pop();
        left.push(...target.split('/').toReversed());
      }
      if (hops > MAX_HOPS || done.length > MAX_DEPTH || this.#followed > MAX_FOLLOWED_NAMES)
        throw tooMany(this.#source);
    }
    return done;
  }
}

/** Says which path a link has led to. */
function describeLink(path: string, names: ReadonlySet<string>): string {
  const [name = ''] = names;
  if (path === name || path.endsWith(`/${name}`)) return '';
  return `: a symbolic link leads to ${show(path)}, which is not in the context`;
}

function show(path: string): string {
  return JSON.stringify(Buffer.from(path, 'latin1').toString('utf8').slice(0, 300));
}

function tooMany(source: string): AppError {
  return new AppError(
    'build_failed',
    `copy of ${JSON.stringify(source)}: its symbolic links lead in a circle, or over too many others; copy their target`,
  );
}

interface Search extends Work {
  base: readonly string[];
  /** For the names below it. */
  patterns: readonly string[];
  links: Links;
}

/** Finds the paths that the patterns match. Links among the directories of a path are not followed, as in Docker. */
async function findRoots(
  index: ContextIndex,
  { base, patterns, links, pacer, budget }: Search,
): Promise<Roots> {
  const roots: Roots = new Map();
  const prefix = base.length === 0 ? '' : `${base.join('/')}/`;
  const matchers = patterns.map(compilePattern);
  // A text with `?` is compared at each place of a name.
  const comparisons = 1 + patterns.reduce((sum, pattern) => sum + pattern.split('?').length - 1, 0);
  let before: string | undefined;
  for (let number = 0; number < index.length; number += 1) {
    await pacer.pause();
    const path = index.path(number);
    budget.spend(path.length * comparisons + 1);
    if (!path.startsWith(prefix)) continue;
    const below = path.slice(prefix.length).split('/', patterns.length);
    const named = prefix + below.join('/');
    // Entries of one directory follow another.
    if (named === before) continue;
    before = named;
    if (below.length < patterns.length || !matchers.every((matches, at) => matches(below[at] ?? '')))
      continue;
    const followed = links.has(named) ? (await links.follow(named.split('/'))).join('/') : named;
    const names = roots.get(followed) ?? new Set();
    roots.set(followed, names.add(below.at(-1) ?? ''));
  }
  return roots;
}

async function collect(
  index: ContextIndex,
  { roots, source, pacer, budget }: Work & { roots: Roots; source: string },
): Promise<{ selection: Selection; found: ReadonlySet<string> }> {
  const selection: Selection = { files: 0, named: [], hasDirectory: false, entries: [] };
  const found = new Set<string>();
  const depths = new Set([...roots.keys()].map(depthOf));
  let bytes = 0;
  const select = (number: number, path: string): void => {
    selection.entries.push({ number, path });
    bytes += index.size(number);
    if (selection.entries.length > MAX_ENTRIES || bytes > MAX_SELECTED_BYTES)
      throw new AppError(
        'build_failed',
        `copy of ${JSON.stringify(source)}: its links lead to more than ${MAX_ENTRIES} files or ${MAX_SELECTED_BYTES} bytes; copy less`,
      );
  };
  for (let number = 0; number < index.length; number += 1) {
    await pacer.pause();
    const path = index.path(number);
    // At most half of the characters of a path end a directory, and each of these is looked up.
    budget.spend(path.length * Math.min(depths.size, 1 + path.length / 2) + 1);
    for (const end of listPrefixes(path, depths)) {
      const root = path.slice(0, end);
      const names = roots.get(root);
      if (names === undefined) continue;
      if (end < path.length) {
        found.add(root);
        selection.hasDirectory = true;
        select(number, path.slice(root === '' ? 0 : end + 1));
      } else if (index.type(number) === 'directory') {
        found.add(root);
        selection.hasDirectory = true;
      } else if (index.type(number) === 'file') {
        found.add(root);
        selection.files += names.size;
        selection.named.push(number);
        for (const name of names) select(number, name);
      }
    }
  }
  return { selection, found };
}

function depthOf(path: string): number {
  return path === '' ? 0 : path.split('/').length;
}

/** Yields the ends of those prefixes of a path that have one of the depths. */
function* listPrefixes(path: string, depths: ReadonlySet<number>): Generator<number> {
  if (depths.has(0)) yield 0;
  let depth = 1;
  for (let end = path.indexOf('/'); end !== -1; end = path.indexOf('/', end + 1)) {
    if (depths.has(depth)) yield end;
    depth += 1;
  }
  if (path !== '' && depths.has(depth)) yield path.length;
}

/** Returns what matches a name. It searches the texts between the stars one after another, so it cannot run away. */
export function compilePattern(pattern: string): (name: string) => boolean {
  const [first = '', ...others] = pattern.split('*');
  const last = others.pop();
  if (last === undefined) return (name) => name.length === first.length && matchesAt(first, name, 0);
  const least = pattern.length - others.length - 1;
  return (name) => {
    if (name.length < least || !matchesAt(first, name, 0)) return false;
    const end = name.length - last.length;
    if (!matchesAt(last, name, end)) return false;
    let at = first.length;
    for (const text of others) {
      at = findText(text, name, at) + text.length;
      if (at < text.length || at > end) return false;
    }
    return at <= end;
  };
}

/** Returns -1 if it is not found, as `indexOf`. */
function findText(text: string, name: string, from: number): number {
  if (!text.includes('?')) return name.indexOf(text, from);
  for (let at = from; at + text.length <= name.length; at += 1) if (matchesAt(text, name, at)) return at;
  return -1;
}

function matchesAt(text: string, name: string, at: number): boolean {
  if (!text.includes('?')) return name.startsWith(text, at);
  for (let index = 0; index < text.length; index += 1)
    if (text[index] !== '?' && text[index] !== name[at + index]) return false;
  return at + text.length <= name.length;
}
