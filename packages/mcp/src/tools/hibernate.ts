import { z } from 'zod';
import { getSandbox, SandboxId, SandboxRecord, toRecord } from '../definition/sandbox-fields.ts';
import { defineTool } from '../definition/tool.ts';

export const hibernate = defineTool({
  name: 'hibernate',
  title: 'Hibernate a sandbox',
  description:
    'Saves a running sandbox to disk, with files, memory and processes, and releases its memory and CPUs. It costs nothing ' +
    'until resume, and keeps its sandboxId. Open connections end.',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  input: z.strictObject({ sandboxId: SandboxId }),
  output: SandboxRecord,
  run: async ({ sandboxId }, call) => {
    const sandbox = await getSandbox(call, sandboxId);
    return toRecord(await sandbox.hibernate({ signal: call.signal }));
  },
});
