import { z } from 'zod';
import { Labels, SandboxRecord, toRecord } from '../definition/sandbox-fields.ts';
import { defineTool } from '../definition/tool.ts';

export const listSandboxes = defineTool({
  name: 'list_sandboxes',
  title: 'List sandboxes',
  description:
    'Lists the sandboxes that the API key sees, newest first; by default those that have not ended. Others may use them, too.',
  annotations: { readOnlyHint: true, openWorldHint: false },
  input: z.strictObject({
    status: z.enum(['creating', 'running', 'hibernated', 'destroyed', 'failed']).optional(),
    labels: Labels.optional(),
    limit: z.int().min(1).max(200).default(50).describe('Maximum number of sandboxes'),
  }),
  output: z.object({
    sandboxes: z.array(SandboxRecord),
    hasMore: z.boolean().describe('True if there are more than the limit'),
  }),
  run: async ({ status, labels, limit }, { client, signal }) => {
    const found = await client.sandboxes.list({ status, labels, limit: limit + 1, signal });
    const sandboxes = found.slice(0, limit).map(({ record }) => toRecord(record));
    return { sandboxes, hasMore: found.length > limit };
  },
});
