import { z } from 'zod';
import {
  createUnlessCancelled,
  IdleTimeout,
  Labels,
  Network,
  NetworkProfile,
  SandboxRecord,
  toRecord,
} from '../definition/sandbox-fields.ts';
import { defineTool } from '../definition/tool.ts';

export const restore = defineTool({
  name: 'restore',
  title: 'Restore a checkpoint',
  description:
    'Creates a new sandbox from a snapshot of checkpoint, with its files, memory and processes, and returns its sandboxId. ' +
    'The sandbox that was saved is not changed. Settings that are left out are those of the saved sandbox.',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: false },
  input: z.strictObject({
    snapshotId: z
      .string()
      .regex(/^snap[0-9a-f]{1,64}$/u, 'is not the id of a snapshot; make one with checkpoint')
      .describe('Id of the snapshot, as checkpoint returned it'),
    timeout: IdleTimeout.optional(),
    labels: Labels.optional(),
    network: Network.optional(),
    networkProfile: NetworkProfile.optional(),
  }),
  output: SandboxRecord,
  run: async ({ snapshotId, ...options }, call) => {
    const sandbox = await createUnlessCancelled(call, () =>
      call.client.sandboxes.restore(snapshotId, options),
    );
    return toRecord(sandbox.record);
  },
});
