/** Runs the service's own probes (packages/server/src/diagnosis), each in its own process in the service's Node.js. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { findNode } from '../../../../scripts/setup/node-runtime.mjs';
import {
  assetsDirectory,
  dataDirectory,
  REPOSITORY,
  runDirectory,
} from '../../../../scripts/setup/paths.mjs';

const PROGRAM = join(REPOSITORY, 'packages', 'server', 'src', 'diagnosis', 'diagnose.ts');
const CONFIG_TIMEOUT_MS = 10_000;
const OUTPUT_LIMIT_BYTES = 1 << 20;
/** Time for a probe to clean up after its standard input has ended. */
const GRACE_MS = 2000;

/**
 * Directories of the service's files, as its configuration sets them.
 * @typedef {object} Paths
 * @property {string} dataDir
 * @property {string} runDir
 * @property {string} assetsDir
 * @property {'auto' | 'on' | 'off'} network
 * @property {string} [error]  why the service's configuration cannot be used
 */

/** @returns {Promise<Paths>} */
export async function readPaths() {
  const fallback = {
    dataDir: dataDirectory(),
    runDir: runDirectory(),
    network: /** @type {const} */ ('auto'),
  };
  const assetsDir = assetsDirectory();
  /** @type {Record<string, any>} */
  const answer = await runProbe('config', CONFIG_TIMEOUT_MS).catch((error) => ({ error: String(error) }));
  if (typeof answer['error'] === 'string') return { ...fallback, assetsDir, error: answer['error'] };
  return {
    dataDir: answer['data_dir'],
    runDir: answer['run_dir'],
    assetsDir: answer['assets_dir'],
    network: answer['network'],
  };
}

/**
 * @param {'config' | 'service' | 'boot' | 'network' | 'objects'} name
 * @param {number} timeoutMs
 * @returns {Promise<Record<string, any>>} the probe's findings, or `error`
 */
export async function runProbe(name, timeoutMs) {
  const node = findNode();
  if (node === undefined) throw new Error('no Node.js 24 or newer for the service; run npm run setup');
  // The probe cleans up and exits when its standard input ends, also when this process is killed.
  const child = spawn(node, [PROGRAM, name], { stdio: ['pipe', 'pipe', 'ignore'] });
  let output = '';
  child.stdout.setEncoding('utf8');
  child.stdout.on('data', (text) => {
    if (output.length < OUTPUT_LIMIT_BYTES) output += text;
  });
  child.stdin.on('error', () => undefined);
  const ended = new Promise((resolve, reject) => child.once('close', resolve).once('error', reject));
  const soft = setTimeout(() => child.stdin.end(), timeoutMs);
  const hard = setTimeout(() => child.kill('SIGKILL'), timeoutMs + GRACE_MS);
  try {
    await ended;
  } finally {
    clearTimeout(soft);
    clearTimeout(hard);
  }
  const line = output.trim().split('\n').at(-1) ?? '';
  return line.startsWith('{')
    ? JSON.parse(line)
    : { error: `the probe gave no answer within ${timeoutMs / 1000} s` };
}
