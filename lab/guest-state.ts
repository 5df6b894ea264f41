/** What a sandbox holds on its disk and in its memory, to be found again. */
import type { Sandbox } from '../packages/sdk/src/index.ts';

const DISK = '/workspace/token';
/** On tmpfs. */
const MEMORY = '/dev/shm/token';
const EXEC_TIMEOUT_S = 300;

/** Settles when the guest has answered that both are written. */
export async function writeState(sandbox: Sandbox, token: string): Promise<void> {
  await read(sandbox, `echo ${token} | tee ${DISK} > ${MEMORY}`);
}

/** Throws unless both are as they were written. */
export async function assertState(sandbox: Sandbox, token: string): Promise<void> {
  const found = await read(sandbox, `cat ${DISK} ${MEMORY}`);
  if (found !== `${token}\n${token}\n`)
    throw new Error(`the sandbox holds ${JSON.stringify(found)}, not ${token} on its disk and in its memory`);
}

/** Output of a command that must end well. */
export async function read(sandbox: Sandbox, command: string): Promise<string> {
  const { exitCode, stdout, stderr } = await sandbox.exec(command, { timeout: EXEC_TIMEOUT_S });
  if (exitCode !== 0) throw new Error(`${command} ended with ${exitCode}: ${stderr}`);
  return stdout;
}
