import { z } from 'zod';
import { CoppiceError, type Sandbox } from '../../../sdk/src/index.ts';
import { encodePart, readPart, type Part } from '../output/read-part.ts';
import { getSandbox, GuestPath, SandboxId } from '../definition/sandbox-fields.ts';
import { defineTool } from '../definition/tool.ts';

/** The service takes no more digits. */
const MAX_OFFSET = 10 ** 14;

export const readFile = defineTool({
  name: 'read_file',
  title: 'Read a file',
  description:
    'Reads a part of a file in a sandbox: as text if it is UTF-8, else in base64. Continue at nextOffset until it is null.',
  annotations: { readOnlyHint: true, openWorldHint: false },
  input: z.strictObject({
    sandboxId: SandboxId,
    path: GuestPath.describe('Absolute path of the file'),
    offset: z.int().min(0).max(MAX_OFFSET).default(0).describe('First byte'),
    maxBytes: z.int().min(4).max(1_048_576).default(65_536).describe('Maximum number of bytes'),
  }),
  output: z.object({
    content: z.string(),
    encoding: z.enum(['utf8', 'base64']),
    bytes: z.number().describe('Bytes that content stands for'),
    nextOffset: z.number().nullable().describe('Where the next part begins; null at the end of the file'),
  }),
  run: async ({ sandboxId, path, offset, maxBytes }, call) => {
    const sandbox = await getSandbox(call, sandboxId);
    const part = await readAt(sandbox, path, { offset, maxBytes, signal: call.signal });
    const { content, encoding, length } = encodePart(part);
    const isEnd = part.isEnd && length === part.bytes.length;
    return { content, encoding, bytes: length, nextOffset: isEnd ? null : offset + length };
  },
});

/**
 * Reads a part of a file. A part behind the end of the file is empty. It asks for one byte more than it returns, which tells
 * whether the file continues, and for nothing beyond: the guest and the audit log would count the rest as read.
 */
async function readAt(
  sandbox: Sandbox,
  path: string,
  { offset, maxBytes, signal }: { offset: number; maxBytes: number; signal: AbortSignal },
): Promise<Part> {
  try {
    const stream = await sandbox.downloadStream(path, { offset, length: maxBytes + 1, signal });
    return await readPart(stream, maxBytes);
  } catch (error) {
    if (!(error instanceof CoppiceError) || error.code !== 'range_not_satisfiable') throw error;
    return { bytes: new Uint8Array(), isEnd: true };
  }
}
