import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { buildProgram } from '../../../../build-program.mjs';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { ControlConfig } from '../../control-config.ts';
import type { ClockRequest, ServeRequest } from './control-process.ts';
import { makeOncePerRun } from '../once-per-run.ts';

const SOURCE = fileURLToPath(new URL('control-process.ts', import.meta.url));

export interface SpawnedControl extends AsyncDisposable {
  address: string;
  pid: number;
  /** Throws, with its exit code or signal, unless the same process still runs. */
  assertRunning: () => void;
  /** Kills the process like a crash: at once, with nothing written. Resolves when it is gone. */
  kill: () => Promise<void>;
  /** Advances or sets the clock of a control that has a `moment`. Resolves with the ms until its next timer is due. */
  tellClock: (request: ClockRequest) => Promise<number>;
}

export interface SpawnOptions {
  /** Called with each line of its log. */
  onLog?: (line: string) => void;
  /** Start of its clock, which then moves only by `tellClock`. */
  moment?: HostMoment;
  /** See lib/fault-directory.ts. */
  faultDirectory?: string;
}

/** A process that has loaded the modules of a control. */
export interface StandbyControl extends AsyncDisposable {
  /** Resolves once it serves. */
  serve: (config: ControlConfig, options?: Omit<SpawnOptions, 'faultDirectory'>) => Promise<SpawnedControl>;
}

/** Starts a control in its own process. Resolves once it serves. */
export async function spawnControl(
  config: ControlConfig,
  { faultDirectory, ...options }: SpawnOptions = {},
): Promise<SpawnedControl> {
  return prepareControl(faultDirectory).serve(config, options);
}

export function prepareControl(faultDirectory?: string): StandbyControl {
  const spawning = spawnProgram(faultDirectory);
  return {
    serve: async (config, options = {}) => serve(await spawning, config, options),
    [Symbol.asyncDispose]: async () => (await spawning).kill(),
  };
}

async function spawnProgram(faultDirectory: string | undefined): Promise<Spawned> {
  program ??= makeProgram();
  const child = spawn(process.execPath, [await program], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    env: { ...process.env, ...(faultDirectory === undefined ? {} : { COPPICE_FAULT_DIR: faultDirectory }) },
  });
  const exited = once(child, 'exit');
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL');
    await exited;
  };
  return { child, exited, kill };
}

let program: Promise<string> | undefined;

/** A run of all tests starts it more than a hundred times, so its 900 files are then bundled into one. */
async function makeProgram(): Promise<string> {
  const shared = await makeOncePerRun('control-process', (directory) => buildProgram(SOURCE, directory));
  return shared === undefined ? SOURCE : join(shared, 'control-process.mjs');
}

interface Spawned {
  child: ChildProcess;
  exited: Promise<unknown>;
  kill: () => Promise<void>;
}

async function serve(
  { child, exited, kill }: Spawned,
  config: ControlConfig,
  { onLog, moment }: SpawnOptions,
): Promise<SpawnedControl> {
  const assertRunning = (): void => {
    const { exitCode, signalCode, pid = 0 } = child;
    if (exitCode !== null || signalCode !== null)
      throw new Error(`control, pid ${pid}, ended: exit code ${exitCode}, signal ${signalCode}`);
    process.kill(pid, 0);
  };
  const tellClock = async (request: ClockRequest): Promise<number> => {
    const answered = once(child, 'message');
    child.send(request);
    const [nextInMs] = (await Promise.race([
      answered,
      exited.then(() => Promise.reject(new Error('the control ended'))),
    ])) as [number | null];
    return nextInMs ?? Infinity;
  };
  const served = Promise.withResolvers<string>();
  let onLine = (first: string): void => {
    onLine = onLog ?? ((): void => undefined);
    served.resolve(first);
  };
  const { stdout } = child;
  if (stdout === null) throw new Error('a control without an output');
  createInterface({ input: stdout }).on('line', (line) => onLine(line));
  const level = onLog === undefined ? 'silent' : 'info';
  const request: ServeRequest = { config, level, ...(moment === undefined ? {} : { moment }) };
  child.send(request);
  const address = await Promise.race([
    served.promise,
    exited.then(() => Promise.reject(new Error('the control ended before it served'))),
  ]);
  return { address, pid: child.pid ?? 0, assertRunning, kill, tellClock, [Symbol.asyncDispose]: kill };
}
