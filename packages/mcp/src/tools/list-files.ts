import { z } from 'zod';
import { getSandbox, GuestPath, SandboxId } from '../definition/sandbox-fields.ts';
import { defineTool } from '../definition/tool.ts';

export const listFiles = defineTool({
  name: 'list_files',
  title: 'List a directory',
  description: 'Lists the entries of one directory in a sandbox, sorted by name.',
  annotations: { readOnlyHint: true, openWorldHint: false },
  input: z.strictObject({
    sandboxId: SandboxId,
    path: GuestPath.describe('Absolute path of the directory'),
    limit: z.int().min(1).max(1000).default(200).describe('Maximum number of entries'),
  }),
  output: z.object({
    entries: z.array(
      z.object({
        name: z.string(),
        type: z.enum(['file', 'dir', 'symlink', 'other']),
        size: z.number(),
        mode: z.string(),
        mtime: z.string(),
        target: z.string().nullable().describe('Target of a symbolic link'),
      }),
    ),
    hasMore: z.boolean().describe('True if there are more than the limit'),
  }),
  run: async ({ sandboxId, path, limit }, call) => {
    const sandbox = await getSandbox(call, sandboxId);
    const found = await sandbox.listFiles(path, { limit: limit + 1, signal: call.signal });
    const entries = found
      .slice(0, limit)
      .map(({ name, type, size, mode, mtime, target }) => ({ name, type, size, mode, mtime, target }));
    return { entries, hasMore: found.length > limit };
  },
});
