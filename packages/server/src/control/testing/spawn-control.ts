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

/** A control in a process of its own, once it serves. */
export async function spawnControl(config: ControlConfig): Promise<SpawnedControl> {
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(config)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
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
  const lines = createInterface({ input: child.stdout });
  const address = await Promise.race([
    once(lines, 'line').then(([line]) => String(line)),
    exited.then(() => Promise.reject(new Error('the control ended before it served'))),
  ]);
  return { address, pid: child.pid ?? 0, assertRunning, kill, [Symbol.asyncDispose]: kill };
}
