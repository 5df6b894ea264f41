import { z } from 'zod';
import { getSandbox, SandboxId } from '../definition/sandbox-fields.ts';
import { reachState } from '../definition/reach-state.ts';
import { defineTool } from '../definition/tool.ts';

const Used = z.number().nullable();

type Usage = Record<'cpuMs' | 'memPeakBytes' | 'uptimeMs' | 'costCents', number | null>;

export const destroySandbox = defineTool({
  name: 'destroy_sandbox',
  title: 'Destroy a sandbox',
  description:
    'Ends a sandbox and deletes its files, and returns what it used. Snapshots of it and its persistent disk stay.',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  input: z.strictObject({ sandboxId: SandboxId }),
  output: z.object({
    status: z.string(),
    cpuMs: Used.describe(
      'CPU time in milliseconds; like the other numbers null if it had been destroyed before',
    ),
    memPeakBytes: Used,
    uptimeMs: Used,
    costCents: Used,
  }),
  run: async ({ sandboxId }, call) => {
    const sandbox = await getSandbox(call, sandboxId);
    const { signal } = call;
    let usage: Usage = { cpuMs: null, memPeakBytes: null, uptimeMs: null, costCents: null };
    const { status } = await reachState(sandbox, { status: 'destroyed', signal }, async () => {
      const { cpuMs, memPeakBytes, uptimeMs, costCents } = await sandbox.destroy({ signal });
      usage = { cpuMs, memPeakBytes, uptimeMs, costCents };
      return sandbox.record;
    });
    return { status, ...usage };
  },
});
