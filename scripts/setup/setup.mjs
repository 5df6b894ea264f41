/** Runs the steps of set-up in order. Each step ensures one thing, and does nothing if that is already in place. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureAccount } from './account.mjs';
import { ensureBaseImage } from './guest/base-image.mjs';
import { ensureInitramfs } from './guest/initramfs.mjs';
import { ensureCommandLine } from './command-line.mjs';
import { ensureGoProgram } from './go-programs.mjs';
import { ensureKernel } from './guest/kernel.mjs';
import { withLock } from './lock.mjs';
import { writeManifest } from './manifest.mjs';
import { getNode } from './node-runtime.mjs';
import { ensureNpmPackages } from './packages/npm-packages.mjs';
import { ensurePackageRegistries } from './registries/package-registries.mjs';
import { ensurePackagedPostgres } from './packaged-postgres.mjs';
import { assetsDirectory, REPOSITORY } from './paths.mjs';
import { findMismatch } from './postgres.mjs';
import { remedyFor } from './prerequisites.mjs';
import { say } from './report.mjs';
import { ensureServiceProgram } from './service-program.mjs';
import { ensureSites } from './sites/sites.mjs';
import { describeError, SetupError } from './setup-error.mjs';
import { ensureSystemPackages } from './packages/system-packages.mjs';
import { ensureApiTests } from './test-tools/api-tests.mjs';
import { ensureObjectServer } from './test-tools/object-server.mjs';
import { ensureRuntimes } from './test-tools/runtimes.mjs';
import { ensurePythonClientTools } from './test-tools/python-client.mjs';

/**
 * @typedef {object} SetupOptions
 * @property {boolean} [tests]    also install the tools of the tests
 * @property {boolean} [bench]    also install the programs that the benchmarks compare with
 * @property {boolean} [registries]  query the package clients again for their registries
 * @property {boolean} [refresh]  build kernel and base image again, from today's packages
 *
 * @typedef {object} SetupResult
 * @property {string} node  Node.js that runs the service
 * @property {string} service  path of the service's program
 * @property {string} [packagedPostgres]  npm's PostgreSQL, for tests: a directory of programs
 * @property {string} [apiTests]  for tests: a Python interpreter that has schemathesis
 * @property {string} [objectServer]  for tests: path of an S3 server
 * @property {string} [runtimes]  for tests: a directory with the programs in which the client is tested
 * @property {string} [pythonClient]  for tests: a Python interpreter that has what the Python client needs
 * @property {() => string} getGo  path of Go; throws SetupError if it is missing, which is possible only without root
 *
 * @typedef {ReadonlyMap<string, import('./prerequisites.mjs').Finding>} Tools
 *
 * @param {SetupOptions} options
 * @returns {Promise<SetupResult>}
 */
export async function setUp(options) {
  assertMachine();
  const assets = assetsDirectory();
  await makeAssetsDirectory(assets);
  // Two locks: checkouts may share the assets, and one checkout's node_modules may serve several assets.
  return withLock({ path: join(REPOSITORY, 'package-lock.json'), flags: 'r' }, () =>
    withLock({ path: join(assets, '.lock'), flags: 'a' }, () => setUpLocked(options)),
  );
}

/** Installs npm packages alone: enough for the checks, and possible without root. */
export async function setUpNpmPackages() {
  await withLock({ path: join(REPOSITORY, 'package-lock.json'), flags: 'r' }, ensureNpmPackages);
}

/** @param {string} assets */
async function makeAssetsDirectory(assets) {
  try {
    await mkdir(assets, { recursive: true, mode: 0o755 });
  } catch (error) {
    throw new SetupError(`${assets} cannot be created: ${describeError(error)}`, {
      remedy: 'set COPPICE_ASSETS_DIR to a directory that you may write to, or run this as root',
    });
  }
}

function assertMachine() {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new SetupError(
      `Coppice runs only on Linux on x86-64; this is ${process.platform} on ${process.arch}`,
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
  const service = await ensureServiceProgram(node);
  await ensureCommandLine(node);
  const sites = await ensureSites(node, { isRequired: options.tests === true });
  const getGo = () => getTool(tools, 'go').path;
  const agentPath = await ensureGoProgram('agent', getGo);
  const jailPath = await ensureGoProgram('jail', getGo);
  const capturePath = await ensureGoProgram('capture', getGo);
  const hostctlPath = await ensureGoProgram('hostctl', getGo);
  const blocksPath = await ensureGoProgram('blocks', getGo);
  const kernel = await ensureKernel({ refresh });
  const initramfsPath = await ensureInitramfs({ kernel, agentPath });
  const baseImage = await ensureBaseImage({ refresh });
  await ensurePackageRegistries({ again: options.registries === true, refresh });
  const qemu = getTool(tools, 'qemu');
  const path = (/** @type {string} */ name) => ({ path: getTool(tools, name).path });
  // Without root they may be missing: sandboxes then have no network.
  const networkTool = (/** @type {string} */ name) => ({
    path: tools.get(name)?.path ?? `/usr/sbin/${name}`,
  });
  await writeManifest({
    version: 1,
    kernel: { path: kernel.path, release: kernel.release },
    initramfs: { path: initramfsPath },
    jail: { path: jailPath },
    capture: { path: capturePath },
    hostctl: { path: hostctlPath },
    blocks: { path: blocksPath },
    ...sites,
    base_image: { layout_path: baseImage.layoutPath, reference: baseImage.reference },
    qemu: { path: qemu.path, version: qemu.version },
    tar2sqfs: path('tar2sqfs'),
    nft: networkTool('nft'),
    ip: networkTool('ip'),
    mke2fs: path('mke2fs'),
    setpriv: path('setpriv'),
    ...(await describePostgres(tools)),
    node: { path: node },
  });
  const forTests = options.tests === true ? await ensureTestTools(tools, getGo) : {};
  return { node, service, getGo, ...forTests };
}

/**
 * Returns PostgreSQL's part of the manifest. It is absent if the service uses the operator's PostgreSQL and this machine
 * has none.
 * @param {Tools} tools
 */
async function describePostgres(tools) {
  const path = tools.get('postgres')?.path;
  const mismatch = await findMismatch(path);
  if (mismatch !== undefined) say(`${mismatch.detail}\n  remedy: ${mismatch.remedy}`);
  return path === undefined ? {} : { postgres_bin: { path } };
}

/**
 * @param {Tools} tools
 * @param {() => string} getGo
 */
async function ensureTestTools(tools, getGo) {
  return {
    packagedPostgres: await ensurePackagedPostgres(),
    apiTests: await ensureApiTests(getTool(tools, 'python')),
    objectServer: await ensureObjectServer(getGo),
    runtimes: await ensureRuntimes(),
    pythonClient: await ensurePythonClientTools(),
  };
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
 * @param {Tools} tools
 * @param {string} name
 */
function getTool(tools, name) {
  const finding = tools.get(name);
  if (finding === undefined) throw new Error(`${name} is not in the table of prerequisites`);
  if (!finding.ok || finding.path === undefined) {
    const { purpose } = finding.prerequisite;
    throw new SetupError(`${name} (${purpose}): ${finding.detail}`, {
      remedy: remedyFor(finding.prerequisite),
    });
  }
  return { path: finding.path, version: finding.version ?? '' };
}
