/** The order of set-up: each step makes sure of one thing, and does nothing where it is already so. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureAccount } from './account.mjs';
import { ensureAgent } from './agent.mjs';
import { ensureBaseImage } from './base-image.mjs';
import { ensureInitramfs } from './initramfs.mjs';
import { ensureJail } from './jail.mjs';
import { ensureKernel } from './kernel.mjs';
import { withLock } from './lock.mjs';
import { writeManifest } from './manifest.mjs';
import { getNode } from './node-runtime.mjs';
import { ensureNpmPackages } from './npm-packages.mjs';
import { assetsDirectory, REPOSITORY } from './paths.mjs';
import { ensurePostgres } from './postgres.mjs';
import { SetupError } from './setup-error.mjs';
import { ensureSystemPackages } from './system-packages.mjs';

/**
 * @typedef {object} SetupOptions
 * @property {boolean} [tests]    also what the tests need
 * @property {boolean} [bench]    also what the benchmark compares with
 * @property {boolean} [refresh]  build kernel and base image again, from today's packages
 *
 * @typedef {object} SetupResult
 * @property {string} node  Node.js that runs the service
 * @property {string} go
 *
 * @param {SetupOptions} options
 * @returns {Promise<SetupResult>}
 */
export async function setUp(options) {
  assertMachine();
  const assets = assetsDirectory();
  await mkdir(assets, { recursive: true, mode: 0o755 });
  // Two locks: checkouts may share the assets, and one checkout's node_modules may serve several assets.
  return withLock({ path: join(REPOSITORY, 'package-lock.json'), flags: 'r' }, () =>
    withLock({ path: join(assets, '.lock'), flags: 'a' }, () => setUpLocked(options)),
  );
}

/** npm packages alone: enough for the checks, and possible without root. */
export async function setUpNpmPackages() {
  await withLock({ path: join(REPOSITORY, 'package-lock.json'), flags: 'r' }, ensureNpmPackages);
}

function assertMachine() {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new SetupError(`Coppice runs on Linux on x86-64, this is ${process.platform} on ${process.arch}`);
  }
  if (process.getuid?.() !== 0) {
    throw new SetupError(
      'set-up needs root: it installs packages, and sandboxes need /dev/net/tun and nftables',
      { remedy: 'run it with sudo' },
    );
  }
}

/**
 * @param {SetupOptions} options
 * @returns {Promise<SetupResult>}
 */
async function setUpLocked(options) {
  const refresh = options.refresh === true;
  const tools = await ensureSystemPackages(scopesOf(options));
  await ensureAccount();
  await ensureNpmPackages();
  const node = getNode();
  const postgresBin = await ensurePostgres();
  const go = getTool(tools, 'go');
  const agentPath = await ensureAgent(go.path);
  const jailPath = await ensureJail(go.path);
  const kernel = await ensureKernel({ refresh });
  const initramfsPath = await ensureInitramfs({ kernel, agentPath });
  const baseImage = await ensureBaseImage({ refresh });
  const qemu = getTool(tools, 'qemu');
  const path = (/** @type {string} */ name) => ({ path: getTool(tools, name).path });
  await writeManifest({
    version: 1,
    kernel: { path: kernel.path, release: kernel.release },
    initramfs: { path: initramfsPath },
    jail: { path: jailPath },
    base_image: { layout_path: baseImage.layoutPath, reference: baseImage.reference },
    qemu: { path: qemu.path, version: qemu.version },
    qemu_img: path('qemu-img'),
    tar2sqfs: path('tar2sqfs'),
    nft: path('nft'),
    ip: path('ip'),
    mke2fs: path('mke2fs'),
    setpriv: path('setpriv'),
    postgres_bin: { path: postgresBin },
    node: { path: node },
  });
  return { node, go: go.path };
}

/**
 * @param {SetupOptions} options
 * @returns {import('./prerequisites.mjs').Scope[]}
 */
function scopesOf(options) {
  /** @type {import('./prerequisites.mjs').Scope[]} */
  const scopes = ['run'];
  if (options.tests === true) scopes.push('tests');
  if (options.bench === true) scopes.push('bench');
  return scopes;
}

/**
 * @param {ReadonlyMap<string, import('./prerequisites.mjs').Finding>} tools
 * @param {string} name
 */
function getTool(tools, name) {
  const finding = tools.get(name);
  if (finding?.path === undefined) throw new Error(`${name} is not in the table of prerequisites`);
  return { path: finding.path, version: finding.version ?? '' };
}
