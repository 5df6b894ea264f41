/**
 * Lists which source files import from which. Imports of types alone, which do not exist at run time, are left out
 * unless they are asked for.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { parseAst } from 'rolldown/parseAst';

/**
 * @typedef {object} Import
 * @property {string} from  a file, by its path in the root
 * @property {string} to  another one
 */

/** Folders and files that are not part of the product. */
const NOT_LOADED = /(?:^|\/)testing\/|\.test\.(?:ts|mjs)$/u;

/**
 * @param {string} root
 * @param {{ withTypes?: boolean }} [options]
 * @returns {Import[]} each between two files below `root`
 */
export function listImports(root, options) {
  const names = readdirSync(root, { recursive: true, encoding: 'utf8' });
  const files = names.filter((name) => /\.(?:ts|mjs)$/u.test(name) && !NOT_LOADED.test(name));
  return files.flatMap((from) => {
    const path = join(root, from);
    return listSpecifiers(readFileSync(path, 'utf8'), from, options)
      .filter((specifier) => specifier.startsWith('.'))
      .map((specifier) => ({ from, to: relative(root, resolve(dirname(path), specifier)) }))
      .filter(({ to }) => !to.startsWith('..'));
  });
}

/**
 * @param {string} text
 * @param {string} name
 * @param {{ withTypes?: boolean }} [options]
 * @returns {string[]} specifiers of the modules that the file loads, as written in it
 */
export function listSpecifiers(text, name, { withTypes = false } = {}) {
  const { body } = parseAst(text, { lang: name.endsWith('.ts') ? 'ts' : 'js' });
  /** @type {string[]} */
  const found = [];
  visit(body, (node) => {
    const { source } = node;
    if (typeof source?.value === 'string' && (withTypes || isLoading(node))) found.push(source.value);
  });
  return found;
}

/**
 * @typedef {{ type?: string, source?: { value?: unknown } | null, importKind?: string, exportKind?: string,
 *   specifiers?: readonly Node[] }} Node
 */

/** @param {Node} node */
function isLoading(node) {
  switch (node.type) {
    case 'ImportExpression':
    case 'ExportAllDeclaration':
      return node.exportKind !== 'type';
    case 'ExportNamedDeclaration':
      return node.exportKind !== 'type' && !isOfTypesOnly(node.specifiers, 'exportKind');
    case 'ImportDeclaration':
      return node.importKind !== 'type' && !isOfTypesOnly(node.specifiers, 'importKind');
    default:
      return false;
  }
}

/**
 * @param {readonly Node[] | undefined} specifiers
 * @param {'importKind' | 'exportKind'} kind
 */
function isOfTypesOnly(specifiers = [], kind) {
  return specifiers.length > 0 && specifiers.every((each) => each[kind] === 'type');
}

/**
 * @param {unknown} value
 * @param {(node: Node) => void} see
 */
function visit(value, see) {
  if (typeof value !== 'object' || value === null) return;
  if ('type' in value) see(/** @type {Node} */ (value));
  for (const child of Object.values(value)) visit(child, see);
}
