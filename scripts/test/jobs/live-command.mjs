import { spawn } from 'node:child_process';
import { homedir } from 'node:os';
import { completePath, REPOSITORY } from '../../setup/paths.mjs';
import { signalGroup } from '../../setup/run-command.mjs';

/** Time from SIGTERM to SIGKILL. */
const KILL_GRACE_MS = 10_000;
/** A process that outlives its parent may keep the output pipe open for ever. */
const REST_OF_OUTPUT_MS = 10_000;

/**
 * @typedef {object} LiveOptions
 * @property {number} timeoutMs
 * @property {string} [cwd]
 * @property {NodeJS.ProcessEnv} [env]
 * @property {(line: string) => void} [onLine]  receives the output line by line; else it goes to our output
 * @property {number} [killGraceMs]
 *
 * @typedef {object} LiveResult
 * @property {number} exitCode  1 if the program could not be started or was stopped at its time limit
 * @property {boolean} expired  whether it was stopped at its time limit
 */

/**
 * Runs a program and passes its output on as it comes. The program gets a process group of its own: after `timeoutMs`
 * the whole group is ended.
 * @param {string} command
 * @param {string[]} args
 * @param {LiveOptions} options
 * @returns {Promise<LiveResult>}
 */
export async function runLive(command, args, options) {
  const output = options.onLine === undefined ? 'inherit' : 'pipe';
  const child = spawn(command, args, {
    cwd: options.cwd ?? REPOSITORY,
    env: { HOME: homedir(), ...process.env, PATH: completePath(), ...options.env },
    stdio: ['ignore', output, output],
    detached: true,
  });
  const stop = () => signalGroup(child, 'SIGTERM');
  process.once('exit', stop);
  const deadline = stopAfter(child, command, options);
  const { onLine } = options;
  const lines =
    onLine === undefined
      ? undefined
      : Promise.all([child.stdout, child.stderr].map((stream) => forEachLine(stream, onLine)));
  try {
    const exitCode = await waitForExit(child, command);
    if (lines !== undefined) await Promise.race([lines, afterMs(REST_OF_OUTPUT_MS)]);
    return { exitCode: deadline.expired ? exitCode || 1 : exitCode, expired: deadline.expired };
  } finally {
    child.stdout?.destroy();
    child.stderr?.destroy();
    deadline.clear();
    process.off('exit', stop);
  }
}

/**
 * @param {import('node:child_process').ChildProcess} child
 * @param {string} command
 * @returns {Promise<number>}
 */
function waitForExit(child, command) {
  return new Promise((resolve) => {
    child.once('error', (error) => {
      process.stdout.write(`${command} cannot be started: ${error.message}\n`);
      resolve(1);
    });
    child.once('exit', (exitCode) => resolve(exitCode ?? 1));
  });
}

/** @param {number} durationMs */
function afterMs(durationMs) {
  return new Promise((resolve) => {
    setTimeout(resolve, durationMs).unref();
  });
}

/**
 * @param {import('node:child_process').ChildProcess} child
 * @param {string} command
 * @param {LiveOptions} options
 */
function stopAfter(child, command, { timeoutMs, killGraceMs = KILL_GRACE_MS }) {
  /** @type {NodeJS.Timeout | undefined} */
  let killTimer;
  const timer = setTimeout(() => {
    deadline.expired = true;
    process.stdout.write(`\n${command} did not end within ${timeoutMs / 1000} s; it is being stopped\n`);
    signalGroup(child, 'SIGTERM');
    killTimer = setTimeout(() => signalGroup(child, 'SIGKILL'), killGraceMs);
  }, timeoutMs);
  const deadline = {
    expired: false,
    clear() {
      clearTimeout(timer);
      clearTimeout(killTimer);
      // The group's leader ended on SIGTERM; others of the group may still run.
      if (deadline.expired) signalGroup(child, 'SIGKILL');
    },
  };
  return deadline;
}

/**
 * @param {import('node:stream').Readable | null} stream
 * @param {(line: string) => void} onLine
 * @returns {Promise<void>} settles when the stream has been read to its end
 */
function forEachLine(stream, onLine) {
  let rest = '';
  stream?.setEncoding('utf8');
  stream?.on('data', (/** @type {string} */ chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) onLine(line);
  });
  return new Promise((resolve) => {
    stream?.once('end', () => {
      if (rest !== '') onLine(rest);
      resolve();
    });
  });
}
