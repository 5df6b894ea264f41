/** Judges numbers and texts of the kernel for Coppice. Pure functions, so tests need no such machine. */

const GIB = 1024 ** 3;
/** Base image, its prepared form, a template and some space for sandboxes. */
const NEEDED_GIB = 5;
const NEEDED_MEMORY_GIB = 1;
const GOOD_MEMORY_GIB = 2;
/** Control's connections, and a few descriptors for each VM in the runner. */
const GOOD_FILES = 4096;
/** QEMU has a few threads, and so has each service process. */
const GOOD_PROCESSES = 2048;
const GOOD_PID_MAX = 16_384;
const GOOD_MAP_COUNT = 65_530;
/** A socket path has at most 107 bytes, and the path of a VM's socket is `<run dir>/v/<23 characters>/data`. */
const MAX_RUN_DIR_BYTES = 70;

/** Magic numbers of statfs(2). */
const FILE_SYSTEMS = new Map([
  [0xef53, 'ext4'],
  [0x58465342, 'xfs'],
  [0x9123683e, 'btrfs'],
  [0x2fc12fc1, 'zfs'],
  [0x794c7630, 'overlayfs'],
  [0x01021994, 'tmpfs'],
  [0x858458f6, 'ramfs'],
  [0x6969, 'nfs'],
  [0xff534d42, 'cifs'],
]);

/** @typedef {import('../doctor.mjs').Row} Row */

/**
 * @param {{ directory: string, freeBytes: number, type: number }} disk
 * @returns {Row}
 */
export function judgeDisk({ directory, freeBytes, type }) {
  const system = FILE_SYSTEMS.get(type) ?? `file system 0x${type.toString(16)}`;
  const detail = `${(freeBytes / GIB).toFixed(1)} GiB free at ${directory} (${system})`;
  const elsewhere = 'set COPPICE_DATA_DIR to another disk';
  if (system === 'tmpfs' || system === 'ramfs')
    return {
      name: 'disk',
      status: 'warn',
      detail: `${detail}: files in it are memory, which is charged to the VMs`,
      remedy: elsewhere,
    };
  if (system === 'nfs' || system === 'cifs')
    return {
      name: 'disk',
      status: 'warn',
      detail: `${detail}: a network file system, where locks and syncs behave differently`,
      remedy: elsewhere,
    };
  if (freeBytes >= NEEDED_GIB * GIB) return { name: 'disk', status: 'ok', detail };
  return { name: 'disk', status: 'fail', detail, remedy: `free at least ${NEEDED_GIB} GiB, or ${elsewhere}` };
}

/**
 * @param {string} meminfo  text of /proc/meminfo
 * @returns {Row}
 */
export function judgeMemory(meminfo) {
  /** @param {string} field */
  const gib = (field) =>
    (Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'mu').exec(meminfo)?.[1] ?? 0) * 1024) / GIB;
  const [total, available] = [gib('MemTotal'), gib('MemAvailable')];
  const detail = `${available.toFixed(1)} of ${total.toFixed(1)} GiB available`;
  if (available >= GOOD_MEMORY_GIB) return { name: 'memory', status: 'ok', detail };
  const status = total < NEEDED_MEMORY_GIB ? 'fail' : 'warn';
  return {
    name: 'memory',
    status,
    detail,
    remedy: `a sandbox takes up to 1 GiB unless its create requests less; free or add memory`,
  };
}

/**
 * @param {{ limits: string, pidMax: number, maxMapCount: number }} found  `limits` is the text of /proc/self/limits
 * @returns {Row[]}
 */
export function judgeLimits({ limits, pidMax, maxMapCount }) {
  return [
    atLeast(
      'open files',
      readHardLimit(limits, 'Max open files'),
      GOOD_FILES,
      'raise it: ulimit -n, or LimitNOFILE= of the unit',
    ),
    atLeast(
      'processes',
      readHardLimit(limits, 'Max processes'),
      GOOD_PROCESSES,
      'raise it: ulimit -u, or LimitNPROC= of the unit',
    ),
    atLeast('kernel.pid_max', pidMax, GOOD_PID_MAX, 'sysctl -w kernel.pid_max=4194304'),
    atLeast('vm.max_map_count', maxMapCount, GOOD_MAP_COUNT, 'sysctl -w vm.max_map_count=262144'),
  ];
}

/**
 * @param {string} limits
 * @param {string} name
 */
function readHardLimit(limits, name) {
  const hard = new RegExp(`^${name}\\s+\\S+\\s+(\\S+)`, 'mu').exec(limits)?.[1] ?? '0';
  return hard === 'unlimited' ? Number.POSITIVE_INFINITY : Number(hard);
}

/**
 * @param {string} name
 * @param {number} value
 * @param {number} good
 * @param {string} remedy
 * @returns {Row}
 */
function atLeast(name, value, good, remedy) {
  const detail = Number.isFinite(value) ? String(value) : 'unlimited';
  if (value >= good) return { name, status: 'ok', detail };
  return {
    name,
    status: 'warn',
    detail: `${detail}, too few for many sandboxes (${good} are enough)`,
    remedy,
  };
}

/**
 * @param {string} value
 * @returns {Row}
 */
export function judgeForwarding(value) {
  const detail =
    value === '1'
      ? 'net.ipv4.ip_forward is 1'
      : 'net.ipv4.ip_forward is 0; the service turns it on while it runs';
  return { name: 'forwarding', status: 'ok', detail };
}

/**
 * @param {{ limit: number, debian: string | undefined, apparmor: string | undefined }} found
 * @returns {Row}
 */
export function judgeUserNamespaces({ limit, debian, apparmor }) {
  const name = 'user namespaces';
  const obstacle =
    limit === 0
      ? 'user.max_user_namespaces is 0'
      : debian === '0'
        ? 'kernel.unprivileged_userns_clone is 0'
        : apparmor === '1'
          ? 'kernel.apparmor_restrict_unprivileged_userns is 1'
          : undefined;
  if (obstacle === undefined) return { name, status: 'ok', detail: 'an ordinary user may make them' };
  return {
    name,
    status: 'ok',
    detail: `only root may make them (${obstacle}); an ordinary user's service cannot use them`,
  };
}

/**
 * @param {string} runDir
 * @returns {Row}
 */
export function judgeSocketPath(runDir) {
  const bytes = Buffer.byteLength(runDir);
  const detail = `${runDir} has ${bytes} bytes of at most ${MAX_RUN_DIR_BYTES}`;
  if (bytes <= MAX_RUN_DIR_BYTES) return { name: 'socket paths', status: 'ok', detail };
  return { name: 'socket paths', status: 'fail', detail, remedy: 'set COPPICE_RUN_DIR to a shorter one' };
}

/**
 * @param {string} source  the kernel's clock
 * @param {string} cpuinfo  text of /proc/cpuinfo
 * @returns {Row}
 */
export function judgeClock(source, cpuinfo) {
  const flags = new Set((/^flags\s*:(.*)$/mu.exec(cpuinfo)?.[1] ?? '').trim().split(' '));
  const missing = ['constant_tsc', 'nonstop_tsc'].filter((flag) => !flags.has(flag));
  const detail = `clock source ${source}${missing.length === 0 ? ', steady TSC' : `; the CPU lacks ${missing.join(', ')}`}`;
  if (missing.length === 0) return { name: 'clock', status: 'ok', detail };
  return { name: 'clock', status: 'warn', detail: `${detail}: the clocks of emulated guests may be wrong` };
}
