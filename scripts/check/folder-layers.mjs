/** Checks whether the folders of a role form layers, and who imports from secluded ones: see layers.mjs. */
import { listImports } from './value-imports.mjs';

/** @typedef {import('./value-imports.mjs').Import} Import */

/**
 * @param {import('./layers.mjs').Layers} layers
 * @returns {string[]} violations, one line each
 */
export function checkLayers({ root, layers }) {
  return findFaults(listImports(root), layers).map((fault) => `${root}: ${fault}`);
}

/**
 * @param {import('./layers.mjs').Secluded} secluded
 * @returns {string[]} violations, one line each
 */
export function checkSecluded({ root, ...secluded }) {
  const faults = findIntruders(listImports(root, { withTypes: true }), secluded);
  return faults.map((fault) => `${root}: ${fault}`);
}

/**
 * @param {readonly Import[]} imports
 * @param {Omit<import('./layers.mjs').Secluded, 'root'>} secluded
 * @returns {string[]}
 */
export function findIntruders(imports, { folder, importers }) {
  const isInside = (/** @type {string} */ file) => file.startsWith(`${folder}/`);
  return imports
    .filter(({ from, to }) => isInside(to) && !isInside(from) && !importers.includes(from))
    .map(({ from, to }) => `${from} imports ${to}, which only ${importers.join(' and ')} may`);
}

/**
 * Finds folders in no layer, imports of a higher layer, and cycles of folders.
 * @param {readonly Import[]} imports
 * @param {readonly (readonly string[])[]} layers  from the top down
 * @returns {string[]}
 */
export function findFaults(imports, layers) {
  const levels = new Map(layers.flatMap((folders, level) => folders.map((folder) => [folder, level])));
  const links = imports
    .map(({ from, to }) => ({ from, to, source: folderOf(from), target: folderOf(to) }))
    .filter(({ source, target }) => source !== target);
  const folders = new Set(imports.flatMap(({ from, to }) => [folderOf(from), folderOf(to)]));
  const unknown = [...folders].filter((folder) => !levels.has(folder));
  const upward = links.filter(({ source, target }) => (levels.get(source) ?? 0) > (levels.get(target) ?? 0));
  return [
    ...unknown.map((folder) => `${folder} is in no layer`),
    ...upward.map(({ from, to }) => `${from} loads ${to}, which is in a layer above it`),
    ...findCycles(links).map((cycle) => `${cycle.join(' and ')} load each other`),
  ];
}

/** @param {string} file */
function folderOf(file) {
  const [first = '', ...rest] = file.split('/');
  return rest.length === 0 ? '.' : first;
}

/**
 * Finds sets of folders in which each folder reaches all the others through imports.
 * @param {readonly { source: string, target: string }[]} links
 * @returns {string[][]}
 */
function findCycles(links) {
  const folders = [...new Set(links.map(({ source }) => source))].toSorted();
  const reached = new Map(folders.map((folder) => [folder, listReached(folder, links)]));
  const cycles = folders.map((folder) =>
    folders.filter((other) => reached.get(folder)?.has(other) && reached.get(other)?.has(folder)),
  );
  const distinct = new Map(cycles.map((cycle) => [cycle.join(' '), cycle]));
  return [...distinct.values()].filter((cycle) => cycle.length > 0);
}

/**
 * @param {string} start
 * @param {readonly { source: string, target: string }[]} links
 */
function listReached(start, links) {
  const reached = new Set();
  const left = [start];
  for (let folder = left.pop(); folder !== undefined; folder = left.pop()) {
    for (const { source, target } of links) {
      if (source !== folder || reached.has(target)) continue;
      reached.add(target);
      left.push(target);
    }
  }
  return reached;
}
