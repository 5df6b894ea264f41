/** The command line from its sources, as a process, for a service on loopback. */
import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import {
  SANDBOX_ID,
  sendJson,
  TEST_KEY,
  wireRecord,
  type Handler,
} from '../../../sdk/src/testing/loopback-server.ts';

const PROGRAM = fileURLToPath(new URL('../../bin/coppice.mjs', import.meta.url));
const DEADLINE_MS = 30_000;
const POLL_MS = 10;

export interface CliResult {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** A call that runs. Its output is collected. */
export class CliProcess {
  readonly child: ChildProcessWithoutNullStreams;
  stdout = '';
  stderr = '';
  readonly #deadlineMs: number;
  readonly #closed: Promise<unknown>;

  constructor(child: ChildProcessWithoutNullStreams, { deadlineMs = DEADLINE_MS } = {}) {
    this.child = child;
    this.#deadlineMs = deadlineMs;
    child.stdout.setEncoding('utf8').on('data', (text: string) => (this.stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (this.stderr += text));
    // The process may end before it has read its input.
    child.stdin.on('error', () => undefined);
    this.#closed = once(child, 'close');
  }

  /** Waits for its end. After a deadline it is killed, and its code is null. */
  async result(): Promise<CliResult> {
    const timer = setTimeout(() => this.child.kill('SIGKILL'), this.#deadlineMs);
    await this.#closed;
    clearTimeout(timer);
    return { code: this.child.exitCode, stdout: this.stdout, stderr: this.stderr };
  }
}

/** A user with an empty home directory. */
export class CliUser implements Disposable {
  readonly home = mkdtempSync(join(tmpdir(), 'cop-cli-user-'));
  readonly #environment: NodeJS.ProcessEnv;

  /** With an address, the user has a key for it in the environment. */
  constructor(address?: string, environment: NodeJS.ProcessEnv = {}) {
    const service = address === undefined ? {} : { SANDBOX_API_KEY: TEST_KEY, SANDBOX_BASE_URL: address };
    const { PATH } = process.env;
    this.#environment = { PATH, HOME: this.home, ...service, ...environment };
  }

  start(...args: string[]): CliProcess {
    return this.#spawn(process.execPath, [PROGRAM, ...args]);
  }

  async run(args: readonly string[], input = ''): Promise<CliResult> {
    const running = this.start(...args);
    running.child.stdin.end(input);
    return running.result();
  }

  /** Runs a line of bash in which `coppice` is the program. */
  async runBash(line: string): Promise<CliResult> {
    const program = `coppice() { '${process.execPath}' '${PROGRAM}' "$@"; }; ${line}`;
    const running = this.#spawn('bash', ['-c', program]);
    running.child.stdin.end();
    return running.result();
  }

  #spawn(command: string, args: string[]): CliProcess {
    return new CliProcess(spawn(command, args, { env: this.#environment, cwd: this.home }));
  }

  [Symbol.dispose](): void {
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** Answers for the sandbox of `wireRecord()`, and with `others` for everything else. */
export function answerSandbox(others: Handler): Handler {
  return async (request, response) => {
    if (request.method === 'GET' && request.url === `/v1/runs/${SANDBOX_ID}`)
      sendJson(response, { body: wireRecord() });
    else await others(request, response);
  };
}

/** Waits for a condition. */
export async function until(what: string, isTrue: () => boolean): Promise<void> {
  const endsAtMs = performance.now() + DEADLINE_MS;
  while (!isTrue()) {
    if (performance.now() > endsAtMs) throw new Error(`waited in vain for ${what}`);
    await sleep(POLL_MS);
  }
}
