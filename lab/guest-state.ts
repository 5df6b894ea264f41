/** Writes a token to a sandbox's disk and memory, and checks that it is still there. */
import type { Sandbox } from '../packages/sdk/src/index.ts';

const DISK = '/workspace/token';
/** On tmpfs. */
const MEMORY = '/dev/shm/token';
const EXEC_TIMEOUT_S = 300;

/** Settles when the guest has acknowledged both writes. */
export async function writeState(sandbox: Sandbox, token: string): Promise<void> {
  await read(sandbox, `echo ${token} | tee ${DISK} > ${MEMORY}`);
}

/** Throws unless both hold the token. */
export async function assertState(sandbox: Sandbox, token: string): Promise<void> {
  const found = await read(sandbox, `cat ${DISK} ${MEMORY}`);
  if (found !== `${token}\n${token}\n`)
    throw new Error(`the sandbox holds ${JSON.stringify(found)}, not ${token} on its disk and in its memory`);
}

/** Returns the standard output of a command. Throws unless it exits with 0. */
export async function read(sandbox: Sandbox, command: string): Promise<string> {
  const { exitCode, stdout, stderr } = await sandbox.exec(command, { timeout: EXEC_TIMEOUT_S });
  if (exitCode !== 0) throw new Error(`${command} exited with ${exitCode}: ${stderr}`);
  return stdout;
}
