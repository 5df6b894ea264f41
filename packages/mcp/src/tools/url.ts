import { z } from 'zod';
import { getSandbox, SandboxId } from '../definition/sandbox-fields.ts';
import { defineTool } from '../definition/tool.ts';

export const url = defineTool({
  name: 'url',
  title: 'Get the URL of a port',
  description:
    'Returns the HTTP URL of a TCP port on which a program in the sandbox listens, also on localhost. Requests to it need ' +
    'the header "Authorization: Bearer <API key>".',
  annotations: { readOnlyHint: true, openWorldHint: false },
  input: z.strictObject({
    sandboxId: SandboxId,
    port: z.int().min(1).max(65_535),
    path: z.string().max(4096).default('/').describe('Path and query'),
  }),
  output: z.object({ url: z.string() }),
  run: async ({ sandboxId, port, path }, call) => {
    const sandbox = await getSandbox(call, sandboxId);
    return { url: sandbox.url(port, path) };
  },
});
