import { spawn } from 'node:child_process';
import { completePath, REPOSITORY } from '../setup/paths.mjs';

const KILL_GRACE_MS = 30_000;

/**
 * @typedef {object} LiveOptions
 * @property {number} timeoutMs
 * @property {string} [cwd]
 * @property {NodeJS.ProcessEnv} [env]
 * @property {(line: string) => void} [onLine]  standard output goes there, line by line, instead of to ours
 *
 * Runs a program whose output is for people, as it comes.
 * @param {string} command
 * @param {string[]} args
 * @param {LiveOptions} options
 * @returns {Promise<number>} exit code; 1 for a program that could not be started or was stopped by us
 */
export async function runLive(command, args, options) {
  const child = spawn(command, args, {
    cwd: options.cwd ?? REPOSITORY,
    env: { HOME: '/root', ...process.env, PATH: completePath(), ...options.env },
    stdio: ['ignore', options.onLine === undefined ? 'inherit' : 'pipe', 'inherit'],
  });
  const stop = () => child.kill('SIGTERM');
  process.once('exit', stop);
  const deadline = stopAfter(child, options.timeoutMs, command);
  const lines = options.onLine === undefined ? undefined : forEachLine(child.stdout, options.onLine);
  try {
    const code = await new Promise((resolve) => {
      child.once('error', (error) => {
        process.stdout.write(`${command} cannot be started: ${error.message}\n`);
        resolve(1);
      });
      child.once('exit', (exitCode) => resolve(exitCode ?? 1));
    });
    await lines;
    return code;
  } finally {
    deadline.clear();
    process.off('exit', stop);
  }
}

/**
 * @param {import('node:child_process').ChildProcess} child
 * @param {number} timeoutMs
 * @param {string} command
 */
function stopAfter(child, timeoutMs, command) {
  /** @type {NodeJS.Timeout | undefined} */
  let killTimer;
  const timer = setTimeout(() => {
    process.stdout.write(`${command} did not end within ${timeoutMs / 60_000} minutes and is stopped\n`);
    child.kill('SIGTERM');
    killTimer = setTimeout(() => child.kill('SIGKILL'), KILL_GRACE_MS);
  }, timeoutMs);
  return {
    clear() {
      clearTimeout(timer);
      clearTimeout(killTimer);
    },
  };
}

/**
 * @param {import('node:stream').Readable | null} stream
 * @param {(line: string) => void} onLine
 */
async function forEachLine(stream, onLine) {
  let rest = '';
  stream?.setEncoding('utf8');
  for await (const chunk of stream ?? []) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) onLine(line);
  }
  if (rest !== '') onLine(rest);
}
