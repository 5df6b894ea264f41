import { z } from 'zod';
import { getSandbox, SandboxId, SandboxRecord, toRecord } from '../definition/sandbox-fields.ts';
import { defineTool } from '../definition/tool.ts';

export const resume = defineTool({
  name: 'resume',
  title: 'Resume a sandbox',
  description: 'Continues a hibernated sandbox where it was, with files, memory and processes.',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  input: z.strictObject({ sandboxId: SandboxId }),
  output: SandboxRecord,
  run: async ({ sandboxId }, call) => {
    const sandbox = await getSandbox(call, sandboxId);
    return toRecord(await sandbox.resume({ signal: call.signal }));
  },
});
