/**
 * Takes an installation off the machine: what runs first, then what it holds in the kernel, then files. Each part looks
 * for what is there, so it may be run on a machine where only half was installed, and again.
 */
import { existsSync } from 'node:fs';
import { rm, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { BACKPORTS_FILE } from '../setup/apt.mjs';
import { assetsDirectory, dataDirectory, isRoot, runDirectory } from '../setup/paths.mjs';
import { describeError } from '../setup/setup-error.mjs';
import { removeAccount } from './account-removal.mjs';
import { removeCgroups } from './cgroup-removal.mjs';
import { ASSETS_ENTRIES, DATA_ENTRIES, removeEntries, RUN_ENTRIES } from './directories.mjs';
import { ENVIRONMENT_PATH } from './environment-file.mjs';
import { buildNetworkNames, removeNetwork } from './network-removal.mjs';
import {
  findPostmaster,
  findService,
  findVmProcesses,
  killAll,
  stopPostmaster,
  stopService,
} from './processes.mjs';
import { RemovalReport } from './removal-report.mjs';
import { isSystemdRunning, systemctl } from './systemd.mjs';
import { UNIT_NAME, UNIT_PATH } from './unit.mjs';

/**
 * @typedef {object} UninstallOptions
 * @property {boolean} purge  data, assets, configuration and account as well
 * @property {string} root    `/`, or a directory that stands for it: then systemd and accounts are left alone
 *
 * @param {UninstallOptions} options
 * @returns {Promise<RemovalReport>}
 */
export async function uninstall(options) {
  const report = new RemovalReport();
  const directories = { dataDir: dataDirectory(), runDir: runDirectory() };
  await attempt('the unit', report, () => removeUnit(options, report));
  await endProcesses(directories, report);
  const { slug } = buildNetworkNames(directories.dataDir);
  if (isRoot())
    await attempt("the guests' network", report, () => removeNetwork(directories.dataDir, report));
  await attempt('control groups', report, () => removeCgroups(slug, report));
  await removeEntries(directories.runDir, RUN_ENTRIES, report);
  await removeData(options, directories.dataDir, report);
  leavePackages(options, report);
  return report;
}

/**
 * One part that fails must not keep the others from being removed; what it says is in the list of what is left.
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
 * @param {UninstallOptions} options
 * @param {RemovalReport} report
 */
async function removeUnit({ root }, report) {
  const path = join(root, UNIT_PATH);
  if (!existsSync(path)) return;
  const isManaged = root === '/' && isSystemdRunning();
  if (isManaged) await systemctl('disable', '--now', UNIT_NAME);
  await rm(path);
  report.remove(path);
  if (isManaged) await systemctl('daemon-reload');
}

/**
 * Nothing may be removed below a service that runs: a failure here ends the uninstallation.
 * @param {{ dataDir: string, runDir: string }} directories
 * @param {RemovalReport} report
 */
async function endProcesses(directories, report) {
  const service = findService(directories.dataDir);
  const pids = [...service.supervisors, ...service.roles].map(({ pid }) => pid);
  if (pids.length > 0) {
    await stopService(service);
    report.remove(`the running service (processes ${pids.join(', ')})`);
  }
  await stopPostmaster(findPostmaster(directories.dataDir));
  const vms = findVmProcesses(directories);
  if (vms.length > 0) {
    await killAll(vms);
    report.remove(`${vms.length} running virtual machine${vms.length === 1 ? '' : 's'}`);
  }
}

/**
 * @param {UninstallOptions} options
 * @param {string} dataDir
 * @param {RemovalReport} report
 */
async function removeData({ purge, root }, dataDir, report) {
  const configuration = join(root, ENVIRONMENT_PATH);
  if (!purge) {
    for (const path of [dataDir, assetsDirectory(), configuration])
      if (existsSync(path)) report.leave(`${path} (goes with npm run uninstall -- --purge)`);
    return;
  }
  await removeEntries(assetsDirectory(), ASSETS_ENTRIES, report);
  await removeEntries(dataDir, DATA_ENTRIES, report);
  if (existsSync(configuration)) {
    await rm(configuration);
    report.remove(configuration);
    await rmdir(dirname(configuration)).catch((error) => {
      report.leave(`${dirname(configuration)}: ${describeReason(error)}`);
    });
  }
  if (root === '/' && isRoot()) await attempt('the account', report, () => removeAccount(report));
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
  report.leave(
    'packages that set-up installed (docs/guides/install.md lists them): apt-get remove what you do not want',
  );
  if (root === '/' && existsSync(BACKPORTS_FILE))
    report.leave(`${BACKPORTS_FILE}: packages from there get their updates from there; remove it with them`);
  report.leave('this checkout, with its node_modules and .cache');
  report.leave('net.ipv4.ip_forward as it is: others may rely on it by now');
}
