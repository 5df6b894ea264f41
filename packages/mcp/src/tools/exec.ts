import { z } from 'zod';
import type { CommandExit, OutputBytes } from '../../../sdk/src/index.ts';
import { CutText } from '../output/cut-text.ts';
import { ToolError } from '../definition/describe-failure.ts';
import { getSandbox, GuestPath, SandboxId } from '../definition/sandbox-fields.ts';
import { defineTool } from '../definition/tool.ts';

/** The body of the request, less what the client adds. */
const MAX_REQUEST_BYTES = (1 << 20) - 1024;

export const exec = defineTool({
  name: 'exec',
  title: 'Run a command',
  description:
    'Runs a shell command with /bin/sh -c in a running sandbox and waits for its end. An exit code other than 0 is a ' +
    'result, not an error. Long output is cut in the middle: to see all of it, redirect it to a file and read that with ' +
    'read_file. To leave a program running, start it in the background with its output redirected.',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  input: z.strictObject({
    sandboxId: SandboxId,
    command: z.string().min(1).max(131_072),
    timeout: z
      .int()
      .min(1)
      .max(86_400)
      .default(30)
      .describe('Seconds after which the command is killed (exit code 124)'),
    cwd: GuestPath.optional().describe("Working directory. Default: the image's WORKDIR, else /workspace"),
    env: z.record(z.string().min(1).max(256), z.string().max(32_768)).optional(),
    user: z.string().min(1).max(64).optional().describe("Name or uid. Default: the image's USER, else root"),
    stdin: z
      .string()
      .max(524_288)
      .optional()
      .describe('Text that the command reads; with command and env at most 1 MiB as JSON. Default: none'),
    maxOutput: z
      .int()
      .min(200)
      .max(200_000)
      .default(16_000)
      .describe('Characters of stdout and of stderr that are returned'),
  }),
  output: z.object({
    exitCode: z.number(),
    timedOut: z.boolean().describe('True if the timeout elapsed and the command was killed'),
    stdout: z.string(),
    stderr: z.string(),
    stdoutBytes: z
      .number()
      .describe('Bytes that the command wrote to stdout, of which the text may be a part'),
    stderrBytes: z.number(),
    truncated: z.boolean().describe('True if the middle of stdout or stderr is left out'),
  }),
  run: async ({ sandboxId, command, maxOutput, ...options }, call) => {
    const { signal } = call;
    assertFits({ command, ...options });
    const sandbox = await getSandbox(call, sandboxId);
    const stdout = new CutText(maxOutput);
    const stderr = new CutText(maxOutput);
    // The stream ends with the call, and the service kills a command whose stream has ended.
    const { exitCode, timedOut } = await readAll(
      sandbox.streamBytes(command, { ...options, signal }),
      ({ type, data }) => {
        (type === 'stdout' ? stdout : stderr).add(data);
        call.progress(stdout.bytes + stderr.bytes);
      },
    );
    stdout.end();
    stderr.end();
    return {
      exitCode,
      timedOut,
      stdout: String(stdout),
      stderr: String(stderr),
      stdoutBytes: stdout.bytes,
      stderrBytes: stderr.bytes,
      truncated: stdout.isCut || stderr.isCut,
    };
  },
});

/** Characters of other scripts, and those that JSON escapes, take up to six bytes: no limit in characters says enough. */
function assertFits(request: object): void {
  if (Buffer.byteLength(JSON.stringify(request)) <= MAX_REQUEST_BYTES) return;
  throw new ToolError(
    'stdin: with command and env it is over 1 MiB as JSON. Write it with write_file, in parts if needed, and redirect from ' +
      'that file: command < file.',
  );
}

async function readAll(
  chunks: AsyncGenerator<OutputBytes, CommandExit>,
  onChunk: (chunk: OutputBytes) => void,
): Promise<CommandExit> {
  for (;;) {
    const next = await chunks.next();
    if (next.done === true) return next.value;
    onChunk(next.value);
  }
}
