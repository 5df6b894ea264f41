import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { ControlConfig } from '../control-config.ts';

const PROGRAM = fileURLToPath(new URL('control-process.ts', import.meta.url));

export interface SpawnedControl extends AsyncDisposable {
  address: string;
  pid: number;
  /** Throws, with how it ended, unless it is the same process that still runs. */
  assertRunning: () => void;
  /** As a crash does it: at once, with nothing written. Resolves when it is gone. */
  kill: () => Promise<void>;
}

/** A control in a process of its own, once it serves. `onLog` is told each line of its log. */
export async function spawnControl(
  config: ControlConfig,
  onLog?: (line: string) => void,
): Promise<SpawnedControl> {
  const child = spawn(
    process.execPath,
    [PROGRAM, JSON.stringify(config), onLog === undefined ? 'silent' : 'info'],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  const exited = once(child, 'exit');
  const assertRunning = (): void => {
    const { exitCode, signalCode, pid = 0 } = child;
    if (exitCode !== null || signalCode !== null)
      throw new Error(`control, pid ${pid}, ended: exit code ${exitCode}, signal ${signalCode}`);
    process.kill(pid, 0);
  };
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL');
    await exited;
  };
  const served = Promise.withResolvers<string>();
  let onLine = (first: string): void => {
    onLine = onLog ?? ((): void => undefined);
    served.resolve(first);
  };
  createInterface({ input: child.stdout }).on('line', (line) => onLine(line));
  const address = await Promise.race([
    served.promise,
    exited.then(() => Promise.reject(new Error('the control ended before it served'))),
  ]);
  return { address, pid: child.pid ?? 0, assertRunning, kill, [Symbol.asyncDispose]: kill };
}
