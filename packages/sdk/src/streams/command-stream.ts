import {
  CollectedOutput,
  tellListener,
  type OutputBytes,
  type OutputChunk,
  type OutputListeners,
} from './collected-output.ts';
import { decodeBase64 } from '../transport/base64.ts';
import { CoppiceError } from '../transport/errors.ts';
import { readEventData } from './event-stream.ts';
import { buildExecRequest, type ExecOptions, type ExecResult } from './exec.ts';
import { parseFrame, type FrameSource, type StreamFrame } from './stream-frame.ts';
import { labelOf, type CallRequest, type Transport } from '../transport/transport.ts';
import { buildQuery, readFlag, readString } from '../transport/wire.ts';

/** Result of a streamed command: exit code, and whether the timeout elapsed. */
export type CommandExit = Pick<ExecResult, 'exitCode' | 'timedOut'>;

/** In characters. A frame holds at most 1 MiB of output, which JSON can make six times as long. */
const MAX_FRAME_LENGTH = 8 * 2 ** 20;

/**
 * Runs a command in the sandbox at `path`, yields its output as it arrives, and returns how it ended. Leaving the loop
 * or an abort kills the command. A slow reader makes it wait. Throws {@link CoppiceError}; the code is
 * `connection_failed` if the stream ends before the command.
 */
export async function* streamCommand(
  transport: Transport,
  path: string,
  command: string,
  options: ExecOptions,
): AsyncGenerator<OutputChunk, CommandExit> {
  return yield* readFrames(transport, buildExecRequest(transport, `${path}/exec/stream`, command, options));
}

/** Does the same as {@link streamCommand}, and yields the output as bytes. */
export async function* streamCommandBytes(
  transport: Transport,
  path: string,
  command: string,
  options: ExecOptions,
): AsyncGenerator<OutputBytes, CommandExit> {
  const request = buildExecRequest(transport, `${path}/exec/stream`, command, options);
  const frames = readFrames(transport, { ...request, query: buildQuery({ encoding: 'base64' }) });
  try {
    for (;;) {
      const next = await frames.next();
      if (next.done === true) return next.value;
      const { type, data } = next.value;
      yield { type, data: decodeBase64(data) };
    }
  } finally {
    await frames.return({ exitCode: -1, timedOut: false });
  }
}

async function* readFrames(
  transport: Transport,
  request: CallRequest,
): AsyncGenerator<OutputChunk, CommandExit> {
  const source = { label: labelOf(request), status: 200 };
  const body = await transport.callStream({ ...request, timeoutMs: transport.timeoutMs });
  for await (const data of readEventData(body, MAX_FRAME_LENGTH)) {
    const frame = parseExecFrame(data, source);
    if (frame === undefined) continue;
    if ('final' in frame) return frame.final;
    yield frame.item;
  }
  throw new CoppiceError(`${source.label}: the stream ended before the command`, {
    status: 0,
    code: 'connection_failed',
  });
}

/**
 * Parses a frame of a command. Returns undefined for a type that only a newer service sends. Throws the error of an
 * error frame.
 */
export function parseExecFrame(
  text: string,
  source: FrameSource,
): StreamFrame<OutputChunk, CommandExit> | undefined {
  const { type, frame } = parseFrame(text, source);
  if (type === 'stdout' || type === 'stderr') return { item: { type, data: readString(frame, 'data') } };
  if (type !== 'exit') return undefined;
  return { final: { exitCode: Number(readString(frame, 'data')), timedOut: readFlag(frame, 'timed_out') } };
}

/** Runs a command to its end, passes its output to the listeners, and returns the collected output. */
export async function execWithListeners(
  chunks: AsyncGenerator<OutputChunk, CommandExit>,
  listeners: OutputListeners,
): Promise<ExecResult> {
  const collected = new CollectedOutput();
  try {
    for (;;) {
      const next = await chunks.next();
      if (next.done === true) return { ...next.value, ...collected.all };
      collected.add(next.value);
      await tellListener(listeners, next.value);
    }
  } catch (error) {
    // If a listener throws, the command is killed.
    await chunks.return({ exitCode: -1, timedOut: false });
    throw error;
  }
}
