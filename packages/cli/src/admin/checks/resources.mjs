/** Reads disk, memory, limits and kernel settings from the kernel's own files. */
import { existsSync, readFileSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import {
  judgeClock,
  judgeDisk,
  judgeForwarding,
  judgeLimits,
  judgeMemory,
  judgeSocketPath,
  judgeUserNamespaces,
} from './judgements.mjs';

/** @typedef {import('../doctor.mjs').Row} Row */

/**
 * @param {import('../probe-process.mjs').Paths} paths
 * @returns {import('./installation.mjs').Look[]}
 */
export function inspectResources({ dataDir, runDir }) {
  return [
    ['disk', () => inspectDisk(dataDir)],
    ['memory', () => judgeMemory(read('/proc/meminfo'))],
    ['limits', inspectLimits],
    ['forwarding', () => judgeForwarding(read('/proc/sys/net/ipv4/ip_forward'))],
    ['user namespaces', inspectUserNamespaces],
    ['socket paths', () => judgeSocketPath(runDir)],
    ['clock', inspectClock],
  ];
}

/**
 * @param {string} dataDir
 * @returns {Promise<Row>}
 */
async function inspectDisk(dataDir) {
  let directory = dataDir;
  while (!existsSync(directory)) directory = dirname(directory);
  const { bavail, bsize, type } = await statfs(directory);
  return judgeDisk({ directory, freeBytes: bavail * bsize, type });
}

function inspectLimits() {
  return judgeLimits({
    limits: read('/proc/self/limits'),
    pidMax: Number(read('/proc/sys/kernel/pid_max')),
    maxMapCount: Number(read('/proc/sys/vm/max_map_count')),
  });
}

function inspectUserNamespaces() {
  return judgeUserNamespaces({
    limit: Number(find('/proc/sys/user/max_user_namespaces') ?? 0),
    debian: find('/proc/sys/kernel/unprivileged_userns_clone'),
    apparmor: find('/proc/sys/kernel/apparmor_restrict_unprivileged_userns'),
  });
}

function inspectClock() {
  const source = find('/sys/devices/system/clocksource/clocksource0/current_clocksource') ?? 'unknown';
  return judgeClock(source, read('/proc/cpuinfo'));
}

/** @param {string} path */
function read(path) {
  return readFileSync(path, 'utf8').trim();
}

/** @param {string} path */
function find(path) {
  return existsSync(path) ? read(path) : undefined;
}
