import { z } from 'zod';
import { getSandbox, SandboxId, SandboxRecord, toRecord } from '../definition/sandbox-fields.ts';
import { reachState } from '../definition/reach-state.ts';
import { defineTool } from '../definition/tool.ts';

export const hibernate = defineTool({
  name: 'hibernate',
  title: 'Hibernate a sandbox',
  description:
    'Saves a running sandbox to disk, with files, memory and processes, and releases its memory and CPUs. It costs nothing ' +
    'until resume, and keeps its sandboxId. Open connections end. One that is hibernated stays so.',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  input: z.strictObject({ sandboxId: SandboxId }),
  output: SandboxRecord,
  run: async ({ sandboxId }, call) => {
    const sandbox = await getSandbox(call, sandboxId);
    const { signal } = call;
    const change = () => sandbox.hibernate({ signal });
    return toRecord(await reachState(sandbox, { status: 'hibernated', signal }, change));
  },
});
