/** A command from its start to its end, its output collected. */
import http2, { type ClientHttp2Stream } from 'node:http2';
import { AppError, type ExecRequest, type ExecResponse } from '@coppice/contract';
import { z } from 'zod';
import { encodeFrame, FRAME, FrameDecoder, MAX_FRAME_BYTES, type Frame } from '../../lib/frames.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { OutputCapture, type OutputBudget } from './output-capture.ts';

/** The agent kills at the timeout; this much later the host no longer believes that it will. */
const AGENT_GRACE_MS = 10_000;
/** After the exit frame the agent ends the stream itself: a reset would kill what the command left running. */
const STREAM_END_MS = 10_000;
const TIMED_OUT_EXIT_CODE = 124;

const Exit = z.object({ exit_code: z.int().min(0).max(255), timed_out: z.boolean() });
type Exit = z.infer<typeof Exit>;

export interface RunCommand {
  runner: RunnerClient;
  id: string;
  request: ExecRequest;
  maxOutputBytes: number;
  budget: OutputBudget;
  /** The command has started: from here on its end is the only answer. */
  onStarted: () => void;
}

export async function runCommand(options: RunCommand): Promise<ExecResponse> {
  const { stream } = await options.runner.exec(options.id, buildFirstFrames(options.request));
  options.onStarted();
  using stdout = new OutputCapture(options.budget, options.maxOutputBytes);
  using stderr = new OutputCapture(options.budget, options.maxOutputBytes);
  const deadlineMs = options.request.timeout * 1000 + AGENT_GRACE_MS;
  const exit = await collect(stream, { stdout, stderr, deadlineMs });
  return {
    exit_code: exit.exit_code,
    stdout: stdout.text,
    stderr: stderr.text,
    timed_out: exit.timed_out,
    truncated: stdout.isTruncated || stderr.isTruncated,
  };
}

/** Head and standard input. The request ends with them, which closes standard input. */
function buildFirstFrames({ command, cwd, env, user, timeout, stdin }: ExecRequest): Buffer {
  const head = { command, cwd, env, user, timeout_ms: timeout * 1000, stdin: stdin !== undefined };
  const frames = [encodeFrame(FRAME.head, Buffer.from(JSON.stringify(head)))];
  const input = Buffer.from(stdin ?? '');
  for (let start = 0; start < input.length; start += MAX_FRAME_BYTES) {
    frames.push(encodeFrame(FRAME.stdin, input.subarray(start, start + MAX_FRAME_BYTES)));
  }
  if (stdin !== undefined) frames.push(encodeFrame(FRAME.stdinEnd));
  return Buffer.concat(frames);
}

interface Collect {
  stdout: OutputCapture;
  stderr: OutputCapture;
  deadlineMs: number;
}

function collect(stream: ClientHttp2Stream, { stdout, stderr, deadlineMs }: Collect): Promise<Exit> {
  const { promise, resolve, reject } = Promise.withResolvers<Exit>();
  const decoder = new FrameDecoder();
  const fail = (cause: unknown) => {
    reject(new AppError('guest_unreachable', 'the sandbox was lost while the command ran', { cause }));
    stream.close(http2.constants.NGHTTP2_CANCEL);
  };
  const timer = setTimeout(() => {
    resolve({ exit_code: TIMED_OUT_EXIT_CODE, timed_out: true });
    stream.close(http2.constants.NGHTTP2_CANCEL);
  }, deadlineMs);
  const takeFrame = ({ type, payload }: Frame) => {
    if (type === FRAME.stdout) stdout.push(payload);
    else if (type === FRAME.stderr) stderr.push(payload);
    else if (type === FRAME.exit) resolve(Exit.parse(JSON.parse(payload.toString('utf8'))));
  };
  const takeChunk = (chunk: Buffer) => {
    try {
      for (const frame of decoder.push(chunk)) takeFrame(frame);
    } catch (error) {
      fail(error);
    }
  };
  stream.on('data', takeChunk);
  stream.once('close', () =>
    fail(new Error(`the stream ended with code ${stream.rstCode} before the exit frame`)),
  );
  return promise.finally(() => {
    clearTimeout(timer);
    stream.off('data', takeChunk);
    stream.resume();
    if (stream.closed) return;
    const endTimer = setTimeout(() => stream.close(http2.constants.NGHTTP2_CANCEL), STREAM_END_MS);
    stream.once('close', () => clearTimeout(endTimer));
  });
}
