/**
 * Chooses kernel modules and their load order. A package that was not installed has no modules.dep, because depmod
 * makes it during installation. Dependencies are therefore read where depmod reads them: in each module's `.modinfo`.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { listFiles } from '../hash.mjs';
import { findExecutable } from '../paths.mjs';
import { SetupError } from '../setup-error.mjs';

const MODULE_LIMIT_BYTES = 64 * 1024 * 1024;
const UNPACK_TIMEOUT_MS = 60_000;
const UNPACKERS = new Map([
  ['.xz', 'xz'],
  ['.zst', 'zstd'],
]);

/**
 * @typedef {object} KernelModule
 * @property {string} name     with underscores, as the kernel knows it
 * @property {Buffer} content  not compressed
 * @property {string[]} depends
 * @property {string[]} aliases  other names by which the kernel asks for it
 *
 * @typedef {object} ModuleTree
 * @property {(name: string) => KernelModule | undefined} find
 * @property {ReadonlySet<string>} builtin
 */

/** @param {string} name */
export const normalize = (name) => name.replaceAll('-', '_');

/**
 * @param {string} directory `lib/modules/<release>` of an unpacked package
 * @returns {Promise<ModuleTree>}
 */
export async function openModuleTree(directory) {
  const paths = new Map(
    (await listFiles(join(directory, 'kernel')))
      .filter((path) => /\.ko(\.xz|\.zst)?$/.test(path))
      .map((path) => [normalize(basename(path).replace(/\.ko(\.\w+)?$/, '')), path]),
  );
  const builtin = readFileSync(join(directory, 'modules.builtin'), 'utf8').split('\n').filter(Boolean);
  return {
    builtin: new Set(builtin.map((path) => normalize(basename(path, '.ko')))),
    find(name) {
      const path = paths.get(normalize(name));
      if (path === undefined) return undefined;
      const content = readModule(path);
      return { name: normalize(name), content, ...parseModule(content, path) };
    },
  };
}

/** @param {string} path */
function readModule(path) {
  const suffix = /\.ko(\.\w+)$/.exec(path)?.[1];
  if (suffix === undefined) return readFileSync(path);
  const unpacker = findExecutable(UNPACKERS.get(suffix) ?? '');
  if (unpacker === undefined)
    throw new SetupError(`${path} is compressed, and no program here can unpack ${suffix}`);
  return execFileSync(unpacker, ['-dc', path], { maxBuffer: MODULE_LIMIT_BYTES, timeout: UNPACK_TIMEOUT_MS });
}

/**
 * @param {Buffer} content
 * @param {string} path for the error message
 * @returns {{ depends: string[], aliases: string[] }} `depends`: modules to load before this one
 */
export function parseModule(content, path) {
  const fields = readElfSection(content, '.modinfo', path).toString('latin1').split('\0');
  const values = (/** @type {string} */ key) =>
    fields.filter((field) => field.startsWith(`${key}=`)).map((field) => field.slice(key.length + 1));
  return {
    depends: values('depends')
      .flatMap((names) => names.split(','))
      .filter(Boolean)
      .map(normalize),
    aliases: values('alias'),
  };
}

/**
 * Returns the content of a section of an ELF64 file, little-endian: the header has the offset of the section headers at
 * 0x28, and at 0x3e the index of the section with their names.
 * @param {Buffer} elf
 * @param {string} wanted
 * @param {string} path
 */
function readElfSection(elf, wanted, path) {
  if (elf.length < 64 || elf.readUInt32BE(0) !== 0x7f454c46 || elf[4] !== 2)
    throw new SetupError(`${path} is no 64-bit ELF file`);
  const table = Number(elf.readBigUInt64LE(0x28));
  const entrySize = elf.readUInt16LE(0x3a);
  const count = elf.readUInt16LE(0x3c);
  const headers = Array.from({ length: count }, (_, index) =>
    elf.subarray(table + index * entrySize, table + (index + 1) * entrySize),
  );
  const names = headers[elf.readUInt16LE(0x3e)];
  if (names === undefined) throw new SetupError(`${path} has no section names`);
  const found = headers.find((header) => {
    const start = Number(names.readBigUInt64LE(0x18)) + header.readUInt32LE(0);
    return elf.toString('latin1', start, elf.indexOf(0, start)) === wanted;
  });
  if (found === undefined) throw new SetupError(`${path} has no section ${wanted}`);
  const offset = Number(found.readBigUInt64LE(0x18));
  return elf.subarray(offset, offset + Number(found.readBigUInt64LE(0x20)));
}

/**
 * @param {ModuleTree} tree
 * @param {{ required: readonly string[], optional: readonly string[] }} wanted
 * @returns {KernelModule[]} each after its dependencies; throws SetupError if a required module is missing
 */
export function orderModules(tree, wanted) {
  /** @type {Map<string, KernelModule>} */
  const ordered = new Map();
  /** @param {string} name @param {string} wantedBy */
  const add = (name, wantedBy) => {
    if (ordered.has(name) || tree.builtin.has(name)) return;
    const found = tree.find(name);
    if (found === undefined)
      throw new SetupError(`the guest kernel has no module ${name}, needed by ${wantedBy}`);
    for (const dependency of found.depends) add(dependency, name);
    ordered.set(name, found);
  };
  for (const name of wanted.required) add(normalize(name), 'the guest');
  for (const name of wanted.optional) {
    if (tree.find(name) !== undefined) add(normalize(name), 'the guest');
  }
  return [...ordered.values()];
}
