/** What `coppice doctor` looks at. The prerequisites are set-up's own table, so the two can not disagree. */
import { existsSync, readFileSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { accountExists, accountName } from '../../../scripts/setup/account.mjs';
import { findManifest } from '../../../scripts/setup/manifest.mjs';
import { findNode } from '../../../scripts/setup/node-runtime.mjs';
import { findDifference } from '../../../scripts/setup/npm-packages.mjs';
import { assetsDirectory, dataDirectory } from '../../../scripts/setup/paths.mjs';
import { findPostgres } from '../../../scripts/setup/postgres.mjs';
import { inspectAll, remedyFor } from '../../../scripts/setup/prerequisites.mjs';
import { describeError } from '../../../scripts/setup/setup-error.mjs';

const SETUP = 'npm run setup';
const GIB = 1024 ** 3;
/** Base image, its prepared form, a template and some room for sandboxes. */
const NEEDED_GIB = 5;

/** @typedef {import('./doctor.mjs').Row} Row */

/** @returns {Promise<Row[]>} */
export async function inspectMachine() {
  const rows = [
    guarded('user', inspectUser),
    guarded('packages', inspectPrerequisites),
    guarded('node', inspectNode),
    guarded('npm packages', inspectNpmPackages),
    guarded('postgres', inspectPostgres),
    guarded('account', inspectAccount),
    guarded('built parts', inspectBuilt),
    guarded('accelerator', inspectAccelerator),
    guarded('tun', inspectTun),
    guarded('forwarding', inspectForwarding),
    guarded('disk', inspectDisk),
  ];
  return (await Promise.all(rows)).flat();
}

/**
 * One look that fails must not hide the others.
 * @param {string} name
 * @param {() => Row | Row[] | Promise<Row | Row[]>} inspectPart
 * @returns {Promise<Row[]>}
 */
async function guarded(name, inspectPart) {
  try {
    return [await inspectPart()].flat();
  } catch (error) {
    return [{ name, status: 'missing', detail: describeError(error), remedy: SETUP }];
  }
}

/** @returns {Row} */
function inspectUser() {
  const root = process.getuid?.() === 0;
  return {
    name: 'root',
    status: root ? 'ok' : 'missing',
    detail: root ? 'running as root' : 'not root',
    ...(root ? {} : { remedy: 'run it with sudo' }),
  };
}

/** @returns {Promise<Row[]>} */
async function inspectPrerequisites() {
  return (await inspectAll(['run', 'tests', 'bench'])).map(describeFinding);
}

/**
 * @param {import('../../../scripts/setup/prerequisites.mjs').Finding} finding
 * @returns {Row}
 */
function describeFinding({ prerequisite, ok, detail, note }) {
  const { name, purpose, scope } = prerequisite;
  if (ok && note !== undefined) return { name, status: 'note', detail: `${detail}: ${note}` };
  if (ok) return { name, status: 'ok', detail };
  return {
    name,
    status: scope === 'run' ? 'missing' : 'note',
    detail: `${detail} (${purpose})`,
    remedy: remedyFor(prerequisite),
  };
}

/** @returns {Row} */
function inspectNode() {
  const node = findNode();
  if (node === undefined)
    return {
      name: 'node',
      status: 'missing',
      detail: 'no Node.js 24 or newer for the service',
      remedy: SETUP,
    };
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
  return { name: 'npm packages', status: 'missing', detail: difference, remedy: SETUP };
}

/** @returns {Promise<Row>} */
async function inspectPostgres() {
  const directory = await findPostgres();
  if (directory !== undefined) return { name: 'postgres', status: 'ok', detail: directory };
  return { name: 'postgres', status: 'missing', detail: 'no PostgreSQL 15 or newer', remedy: SETUP };
}

/** @returns {Promise<Row>} */
async function inspectAccount() {
  const name = accountName();
  if (await accountExists()) return { name: 'account', status: 'ok', detail: name };
  return { name: 'account', status: 'missing', detail: `there is no system account ${name}`, remedy: SETUP };
}

/** @returns {Promise<Row[]>} */
async function inspectBuilt() {
  const manifest = await findManifest();
  if (manifest === undefined)
    return [
      {
        name: 'built parts',
        status: 'missing',
        detail: `nothing in ${assetsDirectory()} yet`,
        remedy: SETUP,
      },
    ];
  const parts = [
    { name: 'guest kernel', path: manifest.kernel.path, note: manifest.kernel.release },
    { name: 'initramfs', path: manifest.initramfs.path, note: '' },
    { name: 'base image', path: manifest.base_image.layout_path, note: manifest.base_image.reference },
  ];
  return parts.map(({ name, path, note }) =>
    existsSync(path)
      ? { name, status: 'ok', detail: note === '' ? path : `${note} (${path})` }
      : { name, status: 'missing', detail: `${path} is gone`, remedy: SETUP },
  );
}

/** @returns {Row} */
function inspectAccelerator() {
  const path = join(dataDirectory(), 'runner', 'accelerator.json');
  if (!existsSync(path))
    return { name: 'accelerator', status: 'note', detail: 'not probed yet: npm start probes it' };
  const { accelerator, reason, boot_id: bootId } = JSON.parse(readFileSync(path, 'utf8'));
  const current = bootId === readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  const detail = `${accelerator}: ${reason}${current ? '' : ' (probed before the last boot; npm start probes again)'}`;
  if (accelerator === 'kvm') return { name: 'accelerator', status: 'ok', detail };
  return {
    name: 'accelerator',
    status: 'note',
    detail,
    remedy: 'for speed, enable virtualization (VT-x or AMD-V; on a virtual machine: nested)',
  };
}

/** @returns {Row} */
function inspectTun() {
  if (existsSync('/dev/net/tun')) return { name: 'tun', status: 'ok', detail: '/dev/net/tun' };
  return { name: 'tun', status: 'missing', detail: '/dev/net/tun does not exist', remedy: 'modprobe tun' };
}

/** @returns {Row} */
function inspectForwarding() {
  const on = readFileSync('/proc/sys/net/ipv4/ip_forward', 'utf8').trim() === '1';
  return {
    name: 'forwarding',
    status: on ? 'ok' : 'note',
    detail: on
      ? 'net.ipv4.ip_forward is 1'
      : 'net.ipv4.ip_forward is 0; the service turns it on while it runs',
  };
}

/** @returns {Promise<Row>} */
async function inspectDisk() {
  let directory = dataDirectory();
  while (!existsSync(directory)) directory = dirname(directory);
  const { bavail, bsize } = await statfs(directory);
  const freeGib = (bavail * bsize) / GIB;
  const detail = `${freeGib.toFixed(1)} GiB free at ${directory}`;
  if (freeGib >= NEEDED_GIB) return { name: 'disk', status: 'ok', detail };
  return {
    name: 'disk',
    status: 'missing',
    detail,
    remedy: `free at least ${NEEDED_GIB} GiB, or set COPPICE_DATA_DIR and COPPICE_ASSETS_DIR to another disk`,
  };
}
