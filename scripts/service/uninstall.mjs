/**
 * Removes an installation from the machine: first its processes, then its kernel objects, then its files. Each part
 * removes only what it finds, so the command also works on a half-finished installation, and may be repeated.
 */
import { existsSync } from 'node:fs';
import { rm, rmdir } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import {
  CONFIGURATION_FILE,
  SYSTEM_ASSETS_DIR,
  SYSTEM_DATA_DIR,
} from '../../packages/server/src/config/default-paths.mjs';
import { BACKPORTS_FILE } from '../setup/packages/apt.mjs';
import {
  assetsDirectory,
  dataDirectory,
  isRoot,
  parseConfigurationFile,
  runDirectory,
} from '../setup/paths.mjs';
import { GUARD_PATH, removeGuard } from '../setup/packages/postgres-packages.mjs';
import { findDataMajor } from '../setup/postgres.mjs';
import { describeError } from '../setup/setup-error.mjs';
import { removeAccount } from './account-removal.mjs';
import { removeCgroups } from './cgroup-removal.mjs';
import { ASSETS_ENTRIES, DATA_ENTRIES, removeEntries, RUN_ENTRIES } from './directories.mjs';
import { forgetInstallation, listOthers } from './installations.mjs';
import { buildNetworkNames, removeNetwork } from './network-removal.mjs';
import {
  findPostmaster,
  findService,
  findVmProcesses,
  isRunDirectoryInUse,
  killAll,
  stopPostmaster,
  stopService,
} from './processes.mjs';
import { RemovalReport } from './removal-report.mjs';
import { isSystemdRunning, systemctl } from './systemd.mjs';
import { ROLES, UNIT_NAMES, unitPath } from './unit.mjs';

/**
 * @typedef {object} UninstallOptions
 * @property {boolean} purge  also remove data, assets, configuration and account
 * @property {string} root    `/`, or a directory used in its place: systemd and accounts are then not changed
 *
 * @param {UninstallOptions} options
 * @returns {Promise<RemovalReport>}
 */
export async function uninstall(options) {
  const report = new RemovalReport();
  const directories = { dataDir: dataDirectory(), runDir: runDirectory() };
  const unitDataDir = findUnitDataDir(options);
  const isOfUnit = isRoot() && unitDataDir === directories.dataDir;
  if (isOfUnit) await attempt('the unit', report, () => removeUnits(options, report));
  else leaveUnit(options, unitDataDir, report);
  const ownRunDir = await endProcesses(directories, report);
  const { slug } = buildNetworkNames(directories.dataDir);
  if (isRoot())
    await attempt("the guests' network", report, () => removeNetwork(directories.dataDir, report));
  await attempt('control groups', report, () => removeCgroups(slug, report));
  if (ownRunDir === undefined) report.leave(`${directories.runDir}: another service uses it`);
  else await removeEntries(ownRunDir, RUN_ENTRIES, report);
  await removeData(options, directories.dataDir, report);
  if (isOfUnit) await removeConfiguration(options, report);
  if (options.root === '/' && isRoot() && (await removeGuard())) report.remove(GUARD_PATH);
  leavePackages(options, report);
  return report;
}

/**
 * Runs one part of the removal. A failure does not stop the other parts: its message is listed with what is left.
 * @param {string} name
 * @param {RemovalReport} report
 * @param {() => Promise<void>} part
 */
async function attempt(name, report, part) {
  try {
    await part();
  } catch (error) {
    report.leave(`${name}: ${describeError(error)}`);
  }
}

/**
 * Finds the installation of the unit and its configuration, which need not be this one.
 * @param {UninstallOptions} options
 * @returns {string} its data directory
 */
function findUnitDataDir({ root }) {
  const path = join(root, CONFIGURATION_FILE);
  const settings = isRoot() ? parseConfigurationFile(path) : {}; // an ordinary user may not read it
  return resolve(settings['COPPICE_DATA_DIR'] ?? join(root, SYSTEM_DATA_DIR));
}

/**
 * @param {UninstallOptions} options
 * @param {string} unitDataDir
 * @param {RemovalReport} report
 */
function leaveUnit({ root }, unitDataDir, report) {
  const units = ROLES.map((role) => unitPath(root, role));
  for (const path of [...units, join(root, CONFIGURATION_FILE)])
    if (existsSync(path)) report.leave(`${path}: belongs to the installation in ${unitDataDir}`);
}

/**
 * @param {UninstallOptions} options
 * @param {RemovalReport} report
 */
async function removeUnits({ root }, report) {
  const isManaged = root === '/' && isSystemdRunning();
  for (const role of ROLES) {
    const path = unitPath(root, role);
    if (!existsSync(path)) continue;
    if (isManaged) await systemctl('disable', '--now', UNIT_NAMES[role]);
    await rm(path);
    report.remove(path);
    if (isManaged) await systemctl('daemon-reload');
  }
}

/**
 * Ends the service's processes. Nothing may be removed below a running service: a failure here ends the uninstallation.
 * @param {{ dataDir: string, runDir: string }} directories
 * @param {RemovalReport} report
 * @returns {Promise<string | undefined>} the run directory; undefined if another service with the same setting uses it
 */
async function endProcesses({ dataDir, runDir }, report) {
  const service = findService(dataDir);
  const pids = [...service.supervisors, ...service.roles].map(({ pid }) => pid);
  if (pids.length > 0) {
    await stopService(service);
    report.remove(`the running service (processes ${pids.join(', ')})`);
  }
  await stopPostmaster(findPostmaster(dataDir));
  const ownRunDir = isRunDirectoryInUse(runDir) ? undefined : runDir;
  const vms = findVmProcesses({ dataDir, runDir: ownRunDir });
  if (vms.length > 0) {
    await killAll(vms);
    report.remove(`${vms.length} running virtual machine${vms.length === 1 ? '' : 's'}`);
  }
  return ownRunDir;
}

/**
 * @param {UninstallOptions} options
 * @param {string} dataDir
 * @param {RemovalReport} report
 */
async function removeData({ purge, root }, dataDir, report) {
  const assets = assetsDirectory();
  // While its data exists, an installation keeps its addresses and user ids.
  if (purge || !existsSync(dataDir)) await forgetInstallation(dataDir, report);
  if (!purge) {
    for (const path of [dataDir, assets]) leaveForPurge(path, report);
    return;
  }
  const [other] = listOthers(dataDir);
  if (other !== undefined && assets === SYSTEM_ASSETS_DIR)
    report.leave(`${assets}: the installation in ${other} uses it`);
  else await removeEntries(assets, ASSETS_ENTRIES, report);
  await removeEntries(dataDir, DATA_ENTRIES, report);
  if (root !== '/' || !isRoot()) return;
  if (other !== undefined) report.leave(`the account: the installation in ${other} uses it`);
  else await attempt('the account', report, () => removeAccount(report));
}

/**
 * @param {UninstallOptions} options
 * @param {RemovalReport} report
 */
async function removeConfiguration({ purge, root }, report) {
  const path = join(root, CONFIGURATION_FILE);
  if (!purge) return leaveForPurge(path, report);
  if (!existsSync(path)) return;
  await rm(path);
  report.remove(path);
  await rmdir(dirname(path)).catch((error) => {
    report.leave(`${dirname(path)}: ${describeReason(error)}`);
  });
}

/**
 * @param {string} path
 * @param {RemovalReport} report
 */
function leaveForPurge(path, report) {
  if (existsSync(path)) report.leave(`${path} (kept; npm run uninstall -- --purge removes it)`);
}

/** @param {unknown} error */
function describeReason(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * @param {UninstallOptions} options
 * @param {RemovalReport} report
 */
function leavePackages({ root }, report) {
  const made = findDataMajor();
  report.leave(
    'packages that set-up installed (docs/guides/install.md lists them): use apt-get remove for those you do not want' +
      (made === undefined ? '' : `; the kept database needs PostgreSQL ${made}`),
  );
  if (root === '/' && existsSync(BACKPORTS_FILE))
    report.leave(
      `${BACKPORTS_FILE}: packages that came from it also get their updates from it; remove it with them`,
    );
  report.leave('this checkout, with its node_modules and .cache');
  report.leave('net.ipv4.ip_forward, unchanged: other programs may rely on it by now');
}
