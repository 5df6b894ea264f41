import { CoppiceError, type Sandbox, type SandboxInfo } from '../../../sdk/src/index.ts';

/**
 * Changes the state of a sandbox. One that has the state already is a success: a host may repeat a call whose answer was
 * lost. Rejects as `change` does if the sandbox has another state.
 */
export async function reachState(
  sandbox: Sandbox,
  { status, signal }: { status: 'running' | 'hibernated' | 'destroyed'; signal: AbortSignal },
  change: () => Promise<SandboxInfo>,
): Promise<Readonly<SandboxInfo>> {
  try {
    return await change();
  } catch (error) {
    if (!(error instanceof CoppiceError) || error.code !== 'invalid_state') throw error;
    const info = await sandbox.info({ signal });
    // During an operation the state is about to change.
    if (info.status === status && info.operation === null) return info;
    throw error;
  }
}
