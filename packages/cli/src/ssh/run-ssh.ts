import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { EXIT, Failure } from '../output/failure.ts';

/** Signals by which this process is ended alone. Without it, ssh would continue. */
const PASSED_ON = ['SIGTERM', 'SIGHUP'] as const;

/** Runs the user's own ssh on this terminal, and returns its exit code: that of the command, or 255 if SSH failed. */
export async function runSsh(args: readonly string[]): Promise<number> {
  const child = spawn('ssh', args, { stdio: 'inherit' });
  // Ctrl-C is for ssh, which is in the same group of the terminal.
  const ignore = (): void => undefined;
  const passOn = (signal: NodeJS.Signals): boolean => child.kill(signal);
  process.on('SIGINT', ignore);
  for (const signal of PASSED_ON) process.on(signal, passOn);
  try {
    const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
    return code ?? EXIT.signal + constants.signals[signal ?? 'SIGKILL'];
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    throw new Failure(
      'there is no program ssh on this machine: install OpenSSH 8.5 or newer, for example the package openssh-client',
    );
  } finally {
    process.off('SIGINT', ignore);
    for (const signal of PASSED_ON) process.off(signal, passOn);
  }
}
