/** Checks 127.0.0.1 before and after the tests: without it most tests wait until they time out. */
import { spawnSync } from 'node:child_process';
import { createServer } from 'node:net';
import { completePath } from '../setup/paths.mjs';

const LISTEN_TIMEOUT_MS = 5_000;
const SHOW_TIMEOUT_MS = 5_000;

/** @returns {Promise<string | undefined>} why no program can listen on 127.0.0.1; undefined if that works */
export function findLoopbackFault() {
  const server = createServer();
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(`no answer in ${LISTEN_TIMEOUT_MS} ms`), LISTEN_TIMEOUT_MS);
    const settle = (/** @type {string | undefined} */ fault) => {
      clearTimeout(timer);
      server.close();
      resolve(fault);
    };
    server.once('error', (error) => settle(error.message));
    server.listen(0, '127.0.0.1', () => settle(undefined));
  });
}

/** @returns {string} the state of the interface lo, for people */
export function describeLoopback() {
  const shown = spawnSync('ip', ['address', 'show', 'lo'], {
    encoding: 'utf8',
    env: { ...process.env, PATH: completePath() },
    timeout: SHOW_TIMEOUT_MS,
  });
  return shown.error === undefined ? shown.stdout + shown.stderr : `${shown.error.message}\n`;
}
