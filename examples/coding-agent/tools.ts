/** The tools of the agent. All of them act in the sandbox. */
import type { Sandbox } from '@coppice/sdk';
import type { Tool, ToolCall, ToolResult } from './model.ts';

/** In characters. The end of an output has the error. */
const MAX_OUTPUT = 20_000;
const COMMAND_TIMEOUT_S = 120;

const PATH = 'path of the file in the project';

export const TOOLS: readonly Tool[] = [
  {
    name: 'exec',
    description: 'Runs a shell command in the project. Returns its exit code and output.',
    parameters: { command: 'the command' },
  },
  { name: 'read_file', description: 'Returns the content of a text file.', parameters: { path: PATH } },
  {
    name: 'write_file',
    description: 'Writes a text file, and replaces it if it exists.',
    parameters: { path: PATH, content: 'the whole content' },
  },
];

/** Carries out a call. A failure is a result, so that the model can react to it. Rejects only when it is aborted. */
export async function runTool(sandbox: Sandbox, call: ToolCall, signal: AbortSignal): Promise<ToolResult> {
  try {
    const output = cut(await carryOut(sandbox, call, signal));
    return { callId: call.id, output, isError: false };
  } catch (error) {
    signal.throwIfAborted();
    return { callId: call.id, output: cut(String(error)), isError: true };
  }
}

async function carryOut(sandbox: Sandbox, { name, input }: ToolCall, signal: AbortSignal): Promise<string> {
  switch (name) {
    case 'exec':
      return exec(sandbox, readText(input, 'command'), signal);
    case 'read_file':
      return sandbox.download(readText(input, 'path'), { signal });
    case 'write_file': {
      const content = readText(input, 'content');
      const { path, size } = await sandbox.upload(readText(input, 'path'), content, { signal });
      return `wrote ${size} bytes to ${path}`;
    }
    default:
      throw new Error(`there is no tool ${name}`);
  }
}

async function exec(sandbox: Sandbox, command: string, signal: AbortSignal): Promise<string> {
  const result = await sandbox.exec(command, { timeout: COMMAND_TIMEOUT_S, signal });
  const end = result.timedOut ? `stopped after ${COMMAND_TIMEOUT_S} s` : `exit code ${result.exitCode}`;
  return `${end}\n${result.stdout}${result.stderr}`;
}

/** A model may leave out what it must give, or give something else. */
function readText(input: ToolCall['input'], name: string): string {
  const value = input[name];
  if (typeof value === 'string') return value;
  throw new Error(`${name} must be a text`);
}

function cut(output: string): string {
  return output.length <= MAX_OUTPUT ? output : `… ${output.slice(-MAX_OUTPUT)}`;
}
