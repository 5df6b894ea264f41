/** Finds, starts and stops the postmaster of a data directory. There is never a second one: the first is reused. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile, readlink, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { PostgresDirectory } from './postgres-directory.ts';

const STOP_POLL_MS = 20;
const MAX_LOG_BYTES = 8 << 20;

export interface PostmasterOptions extends PostgresDirectory {
  socketDir: string;
  logFile: string;
}

/**
 * Returns the process id of the live postmaster of `directory`, if there is one, even if another process started it.
 */
export async function findPostmaster(directory: string): Promise<number | undefined> {
  const text = await readFile(join(directory, 'postmaster.pid'), 'utf8').catch(() => '');
  const pid = Number(text.split('\n')[0]);
  if (!Number.isSafeInteger(pid) || pid <= 1) return undefined;
  // The number may belong to another process by now; a postmaster works in its data directory.
  const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => undefined);
  return cwd === directory ? pid : undefined;
}

/**
 * Starts a postmaster and returns its process id. It gets SIGQUIT from the kernel when control dies, so that it never
 * outlives its owner for long; PostgreSQL treats that as a crash and recovers at the next start.
 */
export async function startPostmaster(options: PostmasterOptions): Promise<number> {
  await rm(join(options.directory, 'postmaster.pid'), { force: true });
  await rotateLog(options.logFile);
  const log = await open(options.logFile, 'a', 0o600);
  try {
    const [program, ...args] = buildCommand(options);
    const child = spawn(program, args, {
      cwd: '/',
      env: { PATH: '/usr/bin:/bin', LC_ALL: 'C' },
      stdio: ['ignore', log.fd, log.fd],
    });
    await once(child, 'spawn');
    child.unref();
    if (child.pid === undefined) throw new Error('the postmaster has no process id');
    return child.pid;
  } finally {
    await log.close();
  }
}

/** Requests a fast shutdown (open transactions are rolled back), and after `deadlineMs` an immediate one. */
export async function stopPostmaster(pid: number, deadlineMs: number): Promise<void> {
  if (!signal(pid, 'SIGINT')) return;
  if (await waitForEnd(pid, deadlineMs)) return;
  signal(pid, 'SIGQUIT');
  if (!(await waitForEnd(pid, deadlineMs))) throw new Error(`postmaster ${pid} does not stop`);
}

/** Returns whether `pid` runs. A zombie does not. */
export async function isAlive(pid: number): Promise<boolean> {
  const status = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  return status !== undefined && !/^\d+ \(.*\) [ZX]/s.test(status);
}

function buildCommand({ bin, directory, socketDir, account }: PostmasterOptions): [string, ...string[]] {
  const settings = {
    listen_addresses: '',
    unix_socket_directories: socketDir,
    unix_socket_permissions: '0700',
    max_connections: '40',
    shared_buffers: '32MB',
    fsync: 'on',
    full_page_writes: 'on',
    synchronous_commit: 'on',
    log_checkpoints: 'off',
    // Statements and their values stay out of the log file.
    log_min_error_statement: 'panic',
    log_error_verbosity: 'terse',
  };
  const identity =
    process.getuid?.() === 0 ? [`--reuid=${account.uid}`, `--regid=${account.gid}`, '--clear-groups'] : [];
  return [
    'setpriv',
    ...identity,
    '--pdeathsig=QUIT',
    '--',
    join(bin, 'postgres'),
    '-D',
    directory,
    ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
  ];
}

async function rotateLog(logFile: string): Promise<void> {
  const size = await stat(logFile).then(
    (found) => found.size,
    () => 0,
  );
  if (size > MAX_LOG_BYTES) await rename(logFile, `${logFile}.1`);
}

/** Sends a signal. Returns false if the process no longer exists. */
function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

async function waitForEnd(pid: number, deadlineMs: number): Promise<boolean> {
  const end = performance.now() + deadlineMs;
  while (performance.now() < end) {
    if (!(await isAlive(pid))) return true;
    await delay(STOP_POLL_MS);
  }
  return false;
}
