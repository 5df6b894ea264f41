/** Compares the tree with a model that has no tree: a flat map of paths, and layers applied by string prefixes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { LayerError } from '../../lib/tar/layer-error.ts';
import { LayerTree } from './layers/layer-tree.ts';
import type { TarEntry } from '../../lib/tar/tar-reader.ts';
import { TEST_LIMITS, entry, hardlink, symlink } from './testing/tree-entries.ts';

interface ModelFile {
  type: string;
  /** Equal for names of one inode. */
  id: number;
  mode: number;
  layer: number;
}

type Model = Map<string, ModelFile>;

class ModelRefusal extends Error {}

const implicit = (layer: number): ModelFile => ({ type: 'directory', id: 0, mode: 0o755, layer });

function isWithin(path: string, directory: string): boolean {
  return path.startsWith(`${directory}/`);
}

function hide(model: Model, path: string, layer: number): void {
  // The contents of a directory are removed before it: only then is it known whether the directory is still needed.
  for (const [name, file] of [...model].toSorted(([one], [other]) => other.length - one.length)) {
    if (name !== path && !isWithin(name, path)) continue;
    if (file.layer === layer) continue;
    model.delete(name);
    const isNeeded = [...model.keys()].some((other) => isWithin(other, name));
    if (isNeeded) model.set(name, implicit(layer));
  }
}

function applyToModel(model: Model, item: TarEntry, layer: number): void {
  const path = item.name.replace(/\/$/u, '');
  const slash = path.lastIndexOf('/');
  const parent = path.slice(0, Math.max(slash, 0));
  const base = path.slice(slash + 1);
  if (base === '.wh..wh..opq') {
    for (const name of Array.from(model.keys())) {
      if (parent === '' || isWithin(name, parent)) hide(model, name, layer);
    }
    return;
  }
  if (base.startsWith('.wh.'))
    return hide(model, `${parent}${parent === '' ? '' : '/'}${base.slice(4)}`, layer);
  for (let at = path.indexOf('/'); at !== -1; at = path.indexOf('/', at + 1)) {
    const prefix = path.slice(0, at);
    const found = model.get(prefix);
    if (found === undefined) model.set(prefix, implicit(layer));
    else if (found.type !== 'directory') throw new ModelRefusal(prefix);
  }
  const old = model.get(path);
  let file: ModelFile = { type: item.type, id: item.dataOffset, mode: item.mode, layer };
  if (item.type === 'hardlink') {
    const target = model.get(item.linkName);
    if (target === undefined || target.type === 'directory') throw new ModelRefusal(path);
    if (target.id === old?.id) return;
    file = { ...target, layer };
  }
  if (file.type !== 'directory' || old?.type !== 'directory') {
    for (const name of Array.from(model.keys()))
      if (name === path || isWithin(name, path)) model.delete(name);
  }
  model.set(path, file);
}

// Few names, so that layers touch the same paths; links have their own names, which are never parents.
const directory = fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 0, maxLength: 3 });
const leaf = fc.constantFrom('a', 'b', 'c', 'x', 'y');
const path = fc.tuple(directory, leaf).map(([parents, name]) => [...parents, name].join('/'));
const markers = fc.constantFrom('.wh.a', '.wh.b', '.wh.c', '.wh.x', '.wh.s', '.wh..wh..opq');
const item: fc.Arbitrary<() => TarEntry> = fc.oneof(
  { weight: 4, arbitrary: path.map((name) => () => entry(name)) },
  {
    weight: 3,
    arbitrary: fc.tuple(path, fc.integer({ min: 0, max: 0o777 })).map(
      ([name, mode]) =>
        () =>
          entry(`${name}/`, { mode }),
    ),
  },
  {
    weight: 3,
    arbitrary: fc.tuple(path, path).map(
      ([name, target]) =>
        () =>
          hardlink(name, target),
    ),
  },
  { weight: 1, arbitrary: directory.map((parents) => () => symlink([...parents, 's'].join('/'), 'a')) },
  {
    weight: 3,
    arbitrary: fc.tuple(directory, markers).map(
      ([parents, marker]) =>
        () =>
          entry([...parents, marker].join('/')),
    ),
  },
);
const layers = fc.array(fc.array(item, { maxLength: 8 }), { maxLength: 4 });

test('a tree and the naive model agree on any stack of layers', () => {
  fc.assert(
    fc.property(layers, (makers) => {
      const tree = new LayerTree(TEST_LIMITS);
      const model: Model = new Map();
      for (const [layer, items] of makers.entries()) {
        for (const make of items) {
          const item = make();
          const refusals = [
            attempt(() => tree.apply(item, layer), LayerError),
            attempt(() => applyToModel(model, item, layer), ModelRefusal),
          ];
          assert.equal(refusals[0], refusals[1], item.name);
          // A refused entry ends the image; the state that it leaves does not matter.
          if (refusals[0]) return;
        }
      }
      assert.deepEqual(viewTree(tree), viewModel(model));
    }),
    { numRuns: 5000 },
  );
});

function attempt(action: () => void, refusal: typeof LayerError | typeof ModelRefusal): boolean {
  try {
    action();
    return false;
  } catch (error) {
    if (error instanceof refusal) return true;
    throw error;
  }
}

function viewTree(tree: LayerTree): string[] {
  return [...tree.walk()]
    .filter(({ path }) => path !== '')
    .map(
      ({ path, inode }) =>
        `${path} ${inode.type} ${inode.mode} ${inode.type === 'directory' ? 0 : inode.dataOffset}`,
    )
    .sort();
}

function viewModel(model: Model): string[] {
  return [...model]
    .map(([path, file]) => `${path} ${file.type} ${file.mode} ${file.type === 'directory' ? 0 : file.id}`)
    .sort();
}
