import { z } from 'zod';
import { getSandbox, SandboxId, SandboxRecord, toRecord } from '../definition/sandbox-fields.ts';
import { reachState } from '../definition/reach-state.ts';
import { defineTool } from '../definition/tool.ts';

export const resume = defineTool({
  name: 'resume',
  title: 'Resume a sandbox',
  description:
    'Continues a hibernated sandbox where it was, with files, memory and processes. One that runs stays so.',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  input: z.strictObject({ sandboxId: SandboxId }),
  output: SandboxRecord,
  run: async ({ sandboxId }, call) => {
    const sandbox = await getSandbox(call, sandboxId);
    const { signal } = call;
    const change = () => sandbox.resume({ signal });
    return toRecord(await reachState(sandbox, { status: 'running', signal }, change));
  },
});
