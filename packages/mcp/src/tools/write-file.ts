import { z } from 'zod';
import { ToolError } from '../definition/describe-failure.ts';
import { getSandbox, GuestPath, SandboxId } from '../definition/sandbox-fields.ts';
import { defineTool } from '../definition/tool.ts';

/** In characters. A message of the protocol must fit into a body of the service, and JSON may double a text. */
const MAX_CONTENT = 524_288;

export const writeFile = defineTool({
  name: 'write_file',
  title: 'Write a file',
  description:
    'Writes a file in a sandbox, or replaces it; missing directories are created. A larger file can be downloaded or made ' +
    'in the sandbox with exec.',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  input: z.strictObject({
    sandboxId: SandboxId,
    path: GuestPath.describe('Absolute path of the file'),
    content: z.string().max(MAX_CONTENT),
    encoding: z.enum(['utf8', 'base64']).default('utf8').describe('How content stands for the bytes'),
    mode: z
      .string()
      .regex(/^[0-7]{3,4}$/u, 'must be octal, for example 755')
      .optional()
      .describe('Permissions in octal, for example 755. Default: those of the replaced file, else 644'),
  }),
  output: z.object({ path: z.string(), bytes: z.number() }),
  run: async ({ sandboxId, path, content, encoding, mode }, call) => {
    const bytes = encoding === 'utf8' ? Buffer.from(content) : decodeBase64(content);
    const sandbox = await getSandbox(call, sandboxId);
    const { signal } = call;
    const written = await sandbox.upload(path, new Uint8Array(bytes), { mode, signal });
    return { path: written.path, bytes: written.size };
  },
});

/** Buffer skips what is not base64, and the file would differ from what the model meant. */
function decodeBase64(text: string): Uint8Array {
  if (/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/u.test(text))
    return Buffer.from(text, 'base64');
  throw new ToolError(
    'content is not base64 with padding. Encode it again, or send text with encoding utf8.',
  );
}
