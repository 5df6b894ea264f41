/** Rows from the answers of the service's own probes (packages/server/src/diagnosis). */
import { runProbe } from '../probe-process.mjs';

/** Enough for a KVM that hangs, followed by a boot under emulation on a busy machine. All probes run at once. */
const BOOT_TIMEOUT_MS = 30_000;
const NETWORK_TIMEOUT_MS = 30_000;
const SERVICE_TIMEOUT_MS = 8000;
/** The check writes 30 MiB, perhaps to a distant server. */
const OBJECTS_TIMEOUT_MS = 60_000;
const VIRTUALIZE = 'for speed, enable virtualization (VT-x or AMD-V; on a virtual machine: nested)';

/** @typedef {import('../doctor.mjs').Row} Row */
/** @typedef {import('../probe-process.mjs').Paths} Paths */
/** @typedef {Record<string, any>} Answer */

/** @param {Paths} paths */
export async function inspectBoot(paths) {
  return paths.error === undefined ? describeBoot(await runProbe('boot', BOOT_TIMEOUT_MS)) : [];
}

/** @param {Paths} paths */
export async function inspectNetwork(paths) {
  if (paths.error !== undefined) return [];
  return describeNetwork(await runProbe('network', NETWORK_TIMEOUT_MS), paths.network);
}

/** @param {Paths} paths */
export async function inspectService(paths) {
  if (paths.error !== undefined) return [];
  const answer = await runProbe('service', SERVICE_TIMEOUT_MS);
  return [describeService(answer), ...describeCgroups(answer)];
}

/** @param {Paths} paths */
export async function inspectObjects(paths) {
  if (paths.error !== undefined) return [];
  return describeObjects(await runProbe('objects', OBJECTS_TIMEOUT_MS));
}

/**
 * @param {Answer} answer
 * @returns {Row}
 */
export function describeObjects({ error, store, conditions = [] }) {
  const name = 'object store';
  if (error !== undefined)
    return { name, status: 'fail', detail: error, remedy: 'see docs/guides/object-store.md' };
  if (conditions.length === 0) return { name, status: 'ok', detail: store };
  return { name, status: 'ok', detail: `${store}: ${conditions.length} conditions hold` };
}

/**
 * @param {Answer} answer
 * @returns {Row}
 */
export function describeBoot(answer) {
  const name = 'accelerator';
  if (typeof answer['error'] === 'string') {
    const tooSlow = /took longer|broken off|no answer within/u.test(answer['error']);
    const detail = `no guest kernel booted: ${answer['error']}`;
    return tooSlow
      ? { name, status: 'warn', detail, remedy: 'try again when the machine is less busy' }
      : { name, status: 'fail', detail, remedy: 'run npm run setup, and read the message of QEMU' };
  }
  if (answer['refusal'] !== undefined)
    return {
      name,
      status: 'fail',
      detail: `the service does not start: ${answer['refusal']}`,
      remedy: answer['remedy'] ?? VIRTUALIZE,
    };
  const { accelerator, reason, boot_ms: bootMs } = answer;
  const detail = `${accelerator}: ${reason}; a guest kernel booted in ${(bootMs / 1000).toFixed(1)} s`;
  return accelerator === 'kvm'
    ? { name, status: 'ok', detail }
    : { name, status: 'warn', detail, remedy: VIRTUALIZE };
}

/**
 * @param {Answer} answer
 * @param {Paths['network']} mode
 * @returns {Row}
 */
export function describeNetwork(answer, mode) {
  const name = 'network';
  if (mode === 'off') return { name, status: 'ok', detail: 'none: switched off by COPPICE_NETWORK=off' };
  const { error, obstacle, untried, forwarded, outcome, foreign = [] } = answer;
  if (obstacle !== undefined) {
    const status = mode === 'on' ? 'fail' : 'warn';
    const [what, ...remedy] = obstacle.split('; ');
    const detail = `none: ${what}${mode === 'on' ? ', but COPPICE_NETWORK=on requires one' : ''}`;
    return { name, status, detail, ...(remedy.length > 0 ? { remedy: remedy.join('; ') } : {}) };
  }
  if (error !== undefined || untried !== undefined)
    return { name, status: 'warn', detail: `forwarding was not tried: ${error ?? untried}` };
  if (forwarded === true)
    return {
      name,
      status: 'ok',
      detail: 'a connection was forwarded through the rules of Coppice and those of this host',
    };
  return describeDrop(outcome, foreign);
}

/**
 * @param {string} outcome
 * @param {{ where: string, remedy: string, names_ours: boolean }[]} foreign
 * @returns {Row}
 */
function describeDrop(outcome, foreign) {
  const name = 'network';
  const what = `a connection like a guest's was not forwarded (${outcome})`;
  if (foreign.length === 0) {
    const remedy = 'look for packet filters that nftables does not show: iptables-legacy, eBPF, the cloud';
    return { name, status: 'fail', detail: `${what}, and no nftables rule explains it`, remedy };
  }
  const places = foreign.map(({ where }) => where).join('; ');
  const remedy = foreign.map((chain) => chain.remedy).join(' && ');
  if (foreign.every((chain) => chain.names_ours)) {
    const detail = `${what}: ${places} drops other traffic and has rules for interfaces with Coppice's names; the probe's has another name`;
    return { name, status: 'warn', detail, remedy: 'check whether a sandbox reaches the internet' };
  }
  return { name, status: 'fail', detail: `${what}: dropped by ${places}`, remedy };
}

/**
 * @param {Answer} answer
 * @returns {Row}
 */
export function describeService(answer) {
  const name = 'service';
  if (answer['error'] !== undefined)
    return { name, status: 'warn', detail: `could not be queried: ${answer['error']}` };
  if (answer['state'] === 'absent') return { name, status: 'ok', detail: 'not running; npm start starts it' };
  if (answer['state'] === 'closed')
    return { name, status: 'warn', detail: `present, but does not answer: ${answer['reason']}` };
  const { status, version } = answer;
  const network = status.network === 'none' ? `no network (${status.network_reason})` : 'filtered network';
  const detail = `running${version === undefined ? '' : `, version ${version}`}: ${status.accelerator}, ${network}, ${status.vms} VMs`;
  return { name, status: 'ok', detail };
}

/**
 * Describes the sandbox limits of the running service, or those of a service started from here.
 * @param {Answer} answer
 * @returns {Row[]}
 */
export function describeCgroups({ state, cgroups, missing_limits: missing }) {
  if (cgroups === undefined) return [];
  const name = 'cgroups';
  const whose = state === 'running' ? 'the running service' : 'a service started from here';
  if (missing.length === 0)
    return [{ name, status: 'ok', detail: `${whose} limits the cpu, memory and pids of sandboxes` }];
  const detail = `${whose} does not limit the ${missing.join(', ')} of sandboxes: ${cgroups.reason}`;
  const remedy =
    'run it as root on the host, under systemd (npm run install-service), or in a container with a writable cgroup hierarchy';
  return [{ name, status: 'warn', detail, remedy }];
}
