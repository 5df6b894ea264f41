/**
 * Where crates are. Two hosts make a registry: that of the index, which cargo has built in, and that of the downloads,
 * which the index names in its file config.json.
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

/** In a package of cargo; Ubuntu's has the version in its name. */
export const CARGO_PACKAGE = { name: 'cargo', file: /\/bin\/cargo(?:-[\d.]+)?$/u };

/** Before this cargo read its index with git, all of it: hundreds of MB. */
const SPARSE_SINCE = [1, 68];
/** Of a toolchain by rustup. */
const NO_DOWNLOAD = { RUSTUP_AUTO_INSTALL: '0' };
const MARK = 'sparse+https://';
const MAX_ADDRESS_BYTES = 256;
/** A package of its own, whatever lies in the directories above it. Any crate does: its index is read before it is looked up. */
const MANIFEST = `[package]
name = "which-index"
version = "0.0.0"
edition = "2021"
[workspace]
[dependencies]
libc = "*"
`;

/**
 * Hosts that stand in cargo's configuration, with those of their downloads as far as cargo has used them.
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
 * Values of `registry` in `[source.…]` and of `index` in `[registries.…]`: all of TOML that is of use here.
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
 * What cargo has written down of the indexes that it has used: directories such as `<host>-<16 hex digits>`.
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
 * The index that a cargo has built in.
 * @param {Buffer} program
 * @returns {string | undefined} with a slash at its end
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
 * What cargo, configured by nobody, reads of an index: hosts of its downloads.
 * @param {Ask} asked
 * @param {string} indexHost
 * @returns {Promise<string[]>} none where cargo is too old, or the index cannot be reached
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

/** @param {string} version  as `cargo --version` tells it */
function isSparse(version) {
  const [, major = '0', minor = '0'] = /^cargo (\d+)\.(\d+)/u.exec(version) ?? [];
  const [sinceMajor = 0, sinceMinor = 0] = SPARSE_SINCE;
  return Number(major) > sinceMajor || (Number(major) === sinceMajor && Number(minor) >= sinceMinor);
}
