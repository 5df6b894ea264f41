import { z } from 'zod';
import { getSandbox, SandboxId } from '../definition/sandbox-fields.ts';
import { defineTool } from '../definition/tool.ts';

export const destroySandbox = defineTool({
  name: 'destroy_sandbox',
  title: 'Destroy a sandbox',
  description:
    'Ends a sandbox and deletes its files, and returns what it used. Snapshots of it and its persistent disk stay.',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  input: z.strictObject({ sandboxId: SandboxId }),
  output: z.object({
    status: z.string(),
    cpuMs: z.number().describe('CPU time in milliseconds'),
    memPeakBytes: z.number(),
    uptimeMs: z.number(),
    costCents: z.number(),
  }),
  run: async ({ sandboxId }, call) => {
    const sandbox = await getSandbox(call, sandboxId);
    const { status, cpuMs, memPeakBytes, uptimeMs, costCents } = await sandbox.destroy({
      signal: call.signal,
    });
    return { status, cpuMs, memPeakBytes, uptimeMs, costCents };
  },
});
