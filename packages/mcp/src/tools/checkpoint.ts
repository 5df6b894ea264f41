import { z } from 'zod';
import { getSandbox, SandboxId } from '../definition/sandbox-fields.ts';
import { defineTool } from '../definition/tool.ts';

export const checkpoint = defineTool({
  name: 'checkpoint',
  title: 'Save a checkpoint',
  description:
    'Saves files, memory and processes of a running sandbox as a snapshot, and returns its snapshotId for restore. The ' +
    'sandbox continues to run. A snapshot is kept until a person deletes it.',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: false },
  input: z.strictObject({
    sandboxId: SandboxId,
    name: z.string().min(1).max(128).optional().describe('Name for people'),
  }),
  output: z.object({
    snapshotId: z.string(),
    sandboxId: z.string(),
    name: z.string().nullable(),
    sizeBytes: z.number(),
    createdAt: z.string(),
  }),
  run: async ({ sandboxId, name }, call) => {
    const sandbox = await getSandbox(call, sandboxId);
    const { id, sizeBytes, createdAt, ...saved } = await sandbox.snapshot({ name, signal: call.signal });
    return { snapshotId: id, sandboxId, name: saved.name, sizeBytes, createdAt };
  },
});
