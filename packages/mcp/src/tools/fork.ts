import { z } from 'zod';
import { ForkError } from '../../../sdk/src/index.ts';
import {
  createUnlessCancelled,
  getSandbox,
  SandboxId,
  SandboxRecord,
  toRecord,
} from '../definition/sandbox-fields.ts';
import { describeFailure } from '../definition/describe-failure.ts';
import { defineTool } from '../definition/tool.ts';

export const fork = defineTool({
  name: 'fork',
  title: 'Fork a sandbox',
  description:
    'Copies a running sandbox, with its files, memory and processes, into new independent sandboxes, and returns them. ' +
    'Use it to try several ways from the same state. The original continues to run.',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: false },
  input: z.strictObject({
    sandboxId: SandboxId,
    count: z.int().min(1).max(100).default(1).describe('Number of copies'),
  }),
  output: z.object({
    children: z.array(SandboxRecord),
    failures: z.array(z.string()).describe('One text for each copy that could not be made'),
  }),
  run: async ({ sandboxId, count }, call) => {
    const sandbox = await getSandbox(call, sandboxId);
    const failures: string[] = [];
    const children = await createUnlessCancelled(call, async () => {
      try {
        return await sandbox.fork(count);
      } catch (error) {
        if (!(error instanceof ForkError) || error.children.length === 0) throw error;
        failures.push(...error.errors.map(describeFailure));
        return error.children;
      }
    });
    return { children: children.map(({ record }) => toRecord(record)), failures };
  },
});
