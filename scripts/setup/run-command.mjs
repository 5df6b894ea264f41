import { spawn } from 'node:child_process';
import { homedir } from 'node:os';
import { completePath } from './paths.mjs';
import { SetupError } from './setup-error.mjs';

/** Enough for `apt-cache show`. Of longer output only the end is kept, which has the errors. */
const OUTPUT_LIMIT_BYTES = 4 * 1024 * 1024;
const SHOWN_LINES = 25;
const KILL_GRACE_MS = 5_000;

/**
 * @typedef {object} RunOptions
 * @property {string} step      name of the step, for the error message
 * @property {number} timeoutMs
 * @property {string} [cwd]
 * @property {NodeJS.ProcessEnv} [env]  added to the environment of this process
 * @property {boolean} [allowFailure]   do not throw for an exit code
 * @property {string} [remedy]  what a person can do about a failure
 *
 * @typedef {object} RunResult
 * @property {number} exitCode
 * @property {string} stdout
 * @property {string} output  stdout and stderr, interleaved
 */

/** Keeps the last OUTPUT_LIMIT_BYTES. */
class Tail {
  /** @type {Buffer[]} */
  #chunks = [];
  #size = 0;

  /** @param {Buffer} chunk */
  push(chunk) {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    while (this.#size > OUTPUT_LIMIT_BYTES && this.#chunks.length > 1)
      this.#size -= this.#chunks.shift()?.length ?? 0;
  }

  toString() {
    return Buffer.concat(this.#chunks).toString('utf8');
  }
}

/**
 * Runs a program without a shell and without standard input, so that it cannot stop to ask. Throws SetupError if the
 * program cannot be started, exceeds its time limit, or fails without `allowFailure`.
 * @param {string} command
 * @param {string[]} args
 * @param {RunOptions} options
 * @returns {Promise<RunResult>}
 */
export async function run(command, args, options) {
  const stdout = new Tail();
  const output = new Tail();
  const child = spawn(command, args, {
    cwd: options.cwd ?? '/',
    env: { HOME: homedir(), ...process.env, LC_ALL: 'C.UTF-8', PATH: completePath(), ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true, // a process group of its own, so that a timeout also ends its children
  });
  child.stdout.on('data', (chunk) => (stdout.push(chunk), output.push(chunk)));
  child.stderr.on('data', (chunk) => output.push(chunk));
  const exit = await waitForExit(child, command, options);
  const result = { exitCode: exit.code, stdout: stdout.toString(), output: output.toString() };
  const fault = exit.timedOut
    ? `did not end within ${options.timeoutMs / 1000} s`
    : `failed with exit code ${result.exitCode}`;
  if (exit.timedOut || (result.exitCode !== 0 && options.allowFailure !== true)) {
    throw new SetupError(
      `${options.step}: ${command} ${fault}\n${excerpt(result.output)}`,
      options.remedy === undefined ? {} : { remedy: options.remedy },
    );
  }
  return result;
}

/**
 * @param {import('node:child_process').ChildProcess} child
 * @param {string} command
 * @param {RunOptions} options
 * @returns {Promise<{ code: number, timedOut: boolean }>}
 */
function waitForExit(child, command, options) {
  return new Promise((resolve, reject) => {
    let timedOut = false;
    /** @type {NodeJS.Timeout | undefined} */
    let killTimer;
    const timer = setTimeout(() => {
      timedOut = true;
      signalGroup(child, 'SIGTERM');
      killTimer = setTimeout(() => signalGroup(child, 'SIGKILL'), KILL_GRACE_MS);
    }, options.timeoutMs);
    const interrupt = () => signalGroup(child, 'SIGTERM');
    process.on('exit', interrupt);
    const finish = () => {
      clearTimeout(timer);
      clearTimeout(killTimer);
      process.off('exit', interrupt);
    };
    child.once('error', (error) => {
      finish();
      reject(
        new SetupError(`${options.step}: ${command} cannot be started: ${error.message}`, { cause: error }),
      );
    });
    child.once('close', (code) => {
      finish();
      resolve({ code: code ?? 1, timedOut });
    });
  });
}

/**
 * @param {import('node:child_process').ChildProcess} child
 * @param {NodeJS.Signals} signal
 */
export function signalGroup(child, signal) {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'ESRCH') throw error;
  }
}

/**
 * Returns the start and the end of an output: programs name the cause first (npm) or last (apt).
 * @param {string} text
 */
function excerpt(text) {
  const lines = text.trimEnd().split('\n');
  const shown =
    lines.length <= 2 * SHOWN_LINES
      ? lines
      : [...lines.slice(0, SHOWN_LINES), '…', ...lines.slice(-SHOWN_LINES)];
  return shown.map((line) => `  | ${line}`).join('\n');
}
