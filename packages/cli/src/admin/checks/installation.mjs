/** Checks what set-up installs. The prerequisites come from set-up's own table, so the two cannot disagree. */
import { existsSync } from 'node:fs';
import { accountExists, accountName } from '../../../../../scripts/setup/account.mjs';
import { findManifest } from '../../../../../scripts/setup/manifest.mjs';
import { findNode } from '../../../../../scripts/setup/node-runtime.mjs';
import { findDifference } from '../../../../../scripts/setup/packages/npm-packages.mjs';
import { assetsDirectory } from '../../../../../scripts/setup/paths.mjs';
import { findMismatch, hasPrograms } from '../../../../../scripts/setup/postgres.mjs';
import { inspectAll, remedyFor } from '../../../../../scripts/setup/prerequisites.mjs';

const SETUP = 'npm run setup';
/** Prerequisites of the network alone: without them sandboxes run, but have no network. */
const NETWORK_ONLY = new Set(['nft', 'ip']);

/** @typedef {import('../doctor.mjs').Row} Row */
/** @typedef {[name: string, look: () => Row | Row[] | Promise<Row | Row[]>]} Look */

/** @returns {Look[]} */
export function inspectInstallation() {
  return [
    ['user', inspectUser],
    ['packages', inspectPrerequisites],
    ['node', inspectNode],
    ['npm packages', inspectNpmPackages],
    ['database', inspectDatabase],
    ['account', inspectAccount],
    ['built parts', inspectBuilt],
  ];
}

function isRoot() {
  return process.getuid?.() === 0;
}

/** @returns {Row} */
function inspectUser() {
  if (isRoot()) return { name: 'user', status: 'ok', detail: 'root' };
  return {
    name: 'user',
    status: 'warn',
    detail: 'an ordinary user: sandboxes have no network, and all VMs run as this user',
    remedy: 'run the service and this command as root',
  };
}

/** @returns {Promise<Row[]>} */
async function inspectPrerequisites() {
  return (await inspectAll(['run', 'tests', 'bench'])).map(describeFinding);
}

/**
 * @param {import('../../../../../scripts/setup/prerequisites.mjs').Finding} finding
 * @returns {Row}
 */
function describeFinding({ prerequisite, ok, detail, note, remedy }) {
  const { name, purpose, scope } = prerequisite;
  if (ok) return { name, status: 'ok', detail: note === undefined ? detail : `${detail}: ${note}` };
  return {
    name,
    status: scope === 'run' && !NETWORK_ONLY.has(name) ? 'fail' : 'warn',
    detail: `${detail} (${purpose})`,
    remedy: remedy ?? remedyFor(prerequisite),
  };
}

/** @returns {Row} */
function inspectNode() {
  const node = findNode();
  if (node === undefined)
    return { name: 'node', status: 'fail', detail: 'no Node.js 24 or newer for the service', remedy: SETUP };
  const own = node === process.execPath;
  return {
    name: 'node',
    status: 'ok',
    detail: own ? `${process.version} (${node})` : `${process.version} here; the service runs in ${node}`,
  };
}

/** @returns {Promise<Row>} */
async function inspectNpmPackages() {
  const difference = await findDifference();
  if (difference === undefined)
    return { name: 'npm packages', status: 'ok', detail: 'as in package-lock.json' };
  return { name: 'npm packages', status: 'fail', detail: difference, remedy: SETUP };
}

/**
 * Inspects the programs that the service starts: those that the last set-up chose.
 * @returns {Promise<Row | Row[]>}
 */
async function inspectDatabase() {
  const bin = (await findManifest())?.postgres_bin?.path;
  if (bin !== undefined && !hasPrograms(bin)) {
    const detail = `${bin}, which the service starts, holds no PostgreSQL any more`;
    return { name: 'database', status: 'fail', detail, remedy: SETUP };
  }
  const mismatch = await findMismatch(bin);
  return mismatch === undefined ? [] : { name: 'database', status: 'fail', ...mismatch };
}

/** @returns {Promise<Row | Row[]>} */
async function inspectAccount() {
  if (!isRoot()) return []; // an ordinary user cannot switch to another user, and does not need to
  const name = accountName();
  if (await accountExists()) return { name: 'account', status: 'ok', detail: name };
  return { name: 'account', status: 'fail', detail: `there is no system account ${name}`, remedy: SETUP };
}

/** @returns {Promise<Row[]>} */
async function inspectBuilt() {
  const manifest = await findManifest();
  if (manifest === undefined) {
    const detail = `nothing in ${assetsDirectory()} yet`;
    return [{ name: 'built parts', status: 'fail', detail, remedy: SETUP }];
  }
  const parts = [
    { name: 'guest kernel', path: manifest.kernel.path, note: manifest.kernel.release },
    { name: 'initramfs', path: manifest.initramfs.path, note: '' },
    { name: 'base image', path: manifest.base_image.layout_path, note: manifest.base_image.reference },
  ];
  return parts.map(({ name, path, note }) =>
    existsSync(path)
      ? { name, status: 'ok', detail: note === '' ? path : `${note} (${path})` }
      : { name, status: 'fail', detail: `${path} is missing`, remedy: SETUP },
  );
}
