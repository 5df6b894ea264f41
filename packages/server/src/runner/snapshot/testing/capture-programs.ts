/** Builds the program `capture` and one whose memory it reads in place of a VM's, with the Go that set-up found. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { withDeadline } from '../../../lib/waiting/deadline.ts';

interface Prerequisites {
  PREREQUISITES: readonly { name: string }[];
  inspect: (prerequisite: { name: string } | undefined) => Promise<{ path?: string; detail: string }>;
}

const REPOSITORY = new URL('../../../../../../', import.meta.url);
const MODULE = fileURLToPath(new URL('capture', REPOSITORY));
const PREREQUISITES = new URL('scripts/setup/prerequisites.mjs', REPOSITORY).href;
/** The standard library is compiled once per machine. */
const BUILD_TIMEOUT_MS = 4 * 60_000;
const ORDER_TIMEOUT_MS = 20_000;

export interface CapturePrograms {
  capture: string;
  vm: string;
}

export async function buildCapturePrograms(directory: string): Promise<CapturePrograms> {
  const { PREREQUISITES: table, inspect } = (await import(PREREQUISITES)) as Prerequisites;
  const { path: go, detail } = await inspect(table.find(({ name }) => name === 'go'));
  if (go === undefined) throw new Error(`go: ${detail}`);
  const args = ['build', '-buildvcs=false', '-o', `${directory}/`, './cmd/capture', './testing/vm'];
  await promisify(execFile)(go, args, {
    cwd: MODULE,
    timeout: BUILD_TIMEOUT_MS,
    env: { ...process.env, CGO_ENABLED: '0', GOTOOLCHAIN: 'local', GOFLAGS: '-mod=readonly' },
  });
  return { capture: join(directory, 'capture'), vm: join(directory, 'vm') };
}

export interface TestVm extends AsyncDisposable {
  pid: number;
  /** Sends a command of `capture/testing/mapper` and waits until it is done. */
  order: (line: string) => Promise<void>;
}

/** Starts a process that maps the whole file as a VM maps its RAM. */
export async function startTestVm(program: string, ramPath: string, sizeBytes: number): Promise<TestVm> {
  const child = spawn(program, ['as-mapper', ramPath, String(sizeBytes)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const expectDone = async (what: string): Promise<void> => {
    const { value } = await withDeadline(what, ORDER_TIMEOUT_MS, lines.next());
    if (value !== 'done') throw new Error(`${what}: the process has ended`);
  };
  await expectDone('the start of a VM');
  return {
    pid: child.pid ?? 0,
    order: async (line) => {
      child.stdin.write(`${line}\n`);
      await expectDone(line);
    },
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGKILL');
      await ended;
    },
  };
}
