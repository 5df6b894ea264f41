/**
 * Finds the hosts of crate registries. A registry has two hosts: that of the index, which is built into cargo, and that
 * of the downloads, which the index names in its file config.json.
 */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { listHosts, parseObject } from './ask-client.mjs';

/** @typedef {import('./ask-client.mjs').Ask} Ask */

/** The program in a package of cargo. Ubuntu's program has the version in its name. */
export const CARGO_PACKAGE = { name: 'cargo', file: /\/bin\/cargo(?:-[\d.]+)?$/u };

/** Older versions of cargo fetch the whole index with git: hundreds of MB. */
const SPARSE_SINCE = [1, 68];
/** Keeps rustup from downloading a toolchain. */
const NO_DOWNLOAD = { RUSTUP_AUTO_INSTALL: '0' };
const MARK = 'sparse+https://';
const MAX_ADDRESS_BYTES = 256;
/**
 * Manifest of a package that ignores workspaces in the directories above it. Any dependency will do: cargo reads the
 * index's config.json before it looks up the crate.
 */
const MANIFEST = `[package]
name = "which-index"
version = "0.0.0"
edition = "2021"
[workspace]
[dependencies]
libc = "*"
`;

/**
 * Finds the hosts in cargo's configuration, and the hosts of their downloads if cargo has used them.
 * @param {string} home  cargo's
 * @returns {string[]}
 */
export function findCratesMirrors(home) {
  const configured = listHosts(
    ['config.toml', 'config'].flatMap((name) => readCargoConfig(join(home, name))),
  );
  const used = readIndexes(home).filter(({ host }) => configured.includes(host));
  return [...new Set([...configured, ...used.flatMap(({ downloads }) => downloads)])];
}

/**
 * Reads the values of `registry` in `[source.…]` and of `index` in `[registries.…]`. It parses no other TOML.
 * @param {string} path
 * @returns {string[]}
 */
function readCargoConfig(path) {
  if (!existsSync(path)) return [];
  let section = '';
  return readFileSync(path, 'utf8')
    .split('\n')
    .flatMap((line) => {
      section = /^\s*\[(?<name>[^\]]+)\]/u.exec(line)?.groups?.['name']?.trim() ?? section;
      const { key, value } =
        /^\s*(?<key>registry|index)\s*=\s*["'](?<value>[^"']+)["']/u.exec(line)?.groups ?? {};
      const isSource = key === 'registry' && section.startsWith('source.');
      const isRegistry = key === 'index' && section.startsWith('registries.');
      return value !== undefined && (isSource || isRegistry) ? [value] : [];
    });
}

/**
 * Reads cargo's cache of the indexes that it has used: directories such as `<host>-<16 hex digits>`.
 * @param {string} home
 * @returns {{ host: string, downloads: string[] }[]}
 */
function readIndexes(home) {
  const directory = join(home, 'registry', 'index');
  if (!existsSync(directory)) return [];
  return readdirSync(directory).flatMap((name) => {
    const host = /^(?<host>.+)-[0-9a-f]{16}$/u.exec(name)?.groups?.['host'];
    const config = join(directory, name, 'config.json');
    if (host === undefined || !existsSync(config)) return [];
    return [{ host, downloads: readDownloads(readFileSync(config, 'utf8')) }];
  });
}

/**
 * @param {string} config  text of an index's config.json
 * @returns {string[]} hosts
 */
export function readDownloads(config) {
  return listHosts([parseObject(config)['dl']]);
}

/**
 * Finds the address of the index that is built into a cargo program.
 * @param {Buffer} program
 * @returns {string | undefined} with a trailing slash
 */
export function findBuiltInIndex(program) {
  for (let at = program.indexOf(MARK); at >= 0; at = program.indexOf(MARK, at + 1)) {
    const text = program.toString('latin1', at, at + MAX_ADDRESS_BYTES);
    const address = /^sparse\+(?<address>https:\/\/[a-z0-9-]+(?:\.[a-z0-9-]+)+\/)/u.exec(text)?.groups;
    if (address !== undefined) return address['address'];
  }
  return undefined;
}

/**
 * Runs cargo without any configuration, and returns the hosts of downloads that it reads from an index.
 * @param {Ask} asked
 * @param {string} indexHost
 * @returns {Promise<string[]>} empty if cargo is too old or cannot reach the index
 */
export async function askCargoForDownloads(asked, indexHost) {
  const isOld = !isSparse((await asked('cargo', ['--version'], NO_DOWNLOAD)) ?? '');
  if (isOld) return [];
  const directory = mkdtempSync(join(tmpdir(), 'coppice-cargo-'));
  try {
    const home = join(directory, 'home');
    mkdirSync(join(directory, 'src'));
    writeFileSync(join(directory, 'src', 'lib.rs'), '');
    writeFileSync(join(directory, 'Cargo.toml'), MANIFEST);
    const env = {
      ...NO_DOWNLOAD,
      CARGO_HOME: home,
      CARGO_HTTP_TIMEOUT: '10',
      CARGO_NET_RETRY: '1',
      CARGO_NET_OFFLINE: 'false',
      CARGO_REGISTRIES_CRATES_IO_PROTOCOL: 'sparse',
    };
    await asked('cargo', ['generate-lockfile', '--manifest-path', join(directory, 'Cargo.toml')], env);
    return readIndexes(home)
      .filter(({ host }) => host === indexHost)
      .flatMap(({ downloads }) => downloads);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** @param {string} version  output of `cargo --version` */
function isSparse(version) {
  const [, major = '0', minor = '0'] = /^cargo (\d+)\.(\d+)/u.exec(version) ?? [];
  const [sinceMajor = 0, sinceMinor = 0] = SPARSE_SINCE;
  return Number(major) > sinceMajor || (Number(major) === sinceMajor && Number(minor) >= sinceMinor);
}
