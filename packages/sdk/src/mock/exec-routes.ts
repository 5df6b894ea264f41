/** Commands of the mocked service. The test decides what they do. */
import { ExecRequest } from '@coppice/contract';
import { requireAllowed } from './mock-state.ts';
import { answerJson, parseBody, type MockRequest } from './mock-request.ts';
import type { MockCommandResult } from './mock-types.ts';
import { refuse } from './refusal.ts';

const TIMED_OUT_EXIT_CODE = 124;

export async function exec(request: MockRequest): Promise<Response> {
  const { exitCode, stdout, stderr, timedOut } = await runCommand(request);
  return answerJson(200, { exit_code: exitCode, stdout, stderr, timed_out: timedOut, truncated: false });
}

/** Answers with the output as server-sent events: one frame for each stream, and the exit. */
export async function streamExec(request: MockRequest): Promise<Response> {
  const { exitCode, stdout, stderr, timedOut } = await runCommand(request);
  const frames = [
    ...(stdout === '' ? [] : [{ type: 'stdout', data: stdout }]),
    ...(stderr === '' ? [] : [{ type: 'stderr', data: stderr }]),
    { type: 'exit', data: String(exitCode), timed_out: timedOut },
  ];
  const events = frames.map((frame) => `data: ${JSON.stringify(frame)}\n\n`).join('');
  return new Response(events, { status: 200, headers: { 'content-type': 'text/event-stream' } });
}

async function runCommand(
  request: MockRequest,
): Promise<Required<{ [Field in keyof MockCommandResult]: NonNullable<MockCommandResult[Field]> }>> {
  const sandbox = request.state.getSandbox(request.ids[0] ?? '');
  const { command, timeout, cwd, env, user, stdin } = parseBody(request, ExecRequest);
  requireAllowed(sandbox, 'use');
  if (request.onExec === undefined) throw refuse('a result for commands unless you pass onExec');
  const result = await request.onExec({
    sandboxId: sandbox.record.id,
    command,
    timeout,
    env: { ...sandbox.env, ...env },
    cwd: cwd ?? sandbox.record.cwd ?? undefined,
    user,
    stdin,
  });
  const {
    timedOut = false,
    exitCode = timedOut ? TIMED_OUT_EXIT_CODE : 0,
    stdout = '',
    stderr = '',
  } = result;
  return { exitCode, stdout, stderr, timedOut };
}
