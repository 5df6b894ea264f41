/** All checks of `coppice admin doctor`. Each check has a time limit, and one that fails does not hide the others. */
import { inspectInstallation } from './checks/installation.mjs';
import { inspectBoot, inspectNetwork, inspectObjects, inspectService } from './checks/probes.mjs';
import { inspectResources } from './checks/resources.mjs';
import { inspectTls } from './checks/tls.mjs';
import { readPaths } from './probe-process.mjs';

const SETUP = 'npm run setup';

/** @typedef {import('./doctor.mjs').Row} Row */

/** @returns {Promise<Row[]>} */
export async function inspectMachine() {
  const paths = await readPaths();
  const configuration = paths.error === undefined ? [] : [describeConfiguration(paths.error)];
  const parts = [
    ...inspectInstallation().map(([name, look]) => guarded(name, look)),
    ...inspectResources(paths).map(([name, look]) => guarded(name, look)),
    guarded('accelerator', () => inspectBoot(paths)),
    guarded('network', () => inspectNetwork(paths)),
    guarded('service', () => inspectService(paths)),
    guarded('object store', () => inspectObjects(paths)),
    guarded('tls', () => inspectTls()),
  ];
  return [...configuration, ...(await Promise.all(parts)).flat()];
}

/**
 * @param {string} error
 * @returns {Row}
 */
function describeConfiguration(error) {
  const remedy = error.includes('npm run setup') ? SETUP : 'correct the setting that the message names';
  return { name: 'configuration', status: 'fail', detail: error, remedy };
}

/**
 * @param {string} name
 * @param {() => Row | Row[] | Promise<Row | Row[]>} look
 * @returns {Promise<Row[]>}
 */
async function guarded(name, look) {
  try {
    return [await look()].flat();
  } catch (error) {
    const detail = `could not be checked: ${error instanceof Error ? error.message : String(error)}`;
    return [{ name, status: 'warn', detail }];
  }
}
