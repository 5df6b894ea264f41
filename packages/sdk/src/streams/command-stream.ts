import { CollectedOutput, tellListener, type OutputChunk, type OutputListeners } from './collected-output.ts';
import { CoppiceError } from '../transport/errors.ts';
import { readEventData } from './event-stream.ts';
import { buildExecRequest, type ExecOptions, type ExecResult } from './exec.ts';
import { parseFrame, type FrameSource, type StreamFrame } from './stream-frame.ts';
import { labelOf, type Transport } from '../transport/transport.ts';
import { readFlag, readString } from '../transport/wire.ts';

/** How a streamed command ended. */
export type CommandExit = Pick<ExecResult, 'exitCode' | 'timedOut'>;

/** A frame holds at most 1 MiB of output, which JSON can make six times as long. */
const MAX_FRAME_LENGTH = 8 * 2 ** 20;

/**
 * Yields output as it comes and returns how the command ended. Leaving the loop, or an abort, kills the command; one who
 * is slow to ask for more makes it wait. `path` is that of the sandbox.
 */
export async function* streamCommand(
  transport: Transport,
  path: string,
  command: string,
  options: ExecOptions,
): AsyncGenerator<OutputChunk, CommandExit> {
  const request = buildExecRequest(transport, `${path}/exec/stream`, command, options);
  const source = { label: labelOf(request), status: 200 };
  const body = await transport.callStream({ ...request, timeoutMs: transport.timeoutMs });
  for await (const data of readEventData(body, MAX_FRAME_LENGTH)) {
    const frame = parseExecFrame(data, source);
    if (frame === undefined) continue;
    if ('final' in frame) return frame.final;
    yield frame.item;
  }
  throw new CoppiceError(`${source.label}: the stream ended before the command did`, {
    status: 0,
    code: 'connection_failed',
  });
}

/** Undefined for a frame of a type that a newer service may send. */
export function parseExecFrame(
  text: string,
  source: FrameSource,
): StreamFrame<OutputChunk, CommandExit> | undefined {
  const { type, frame } = parseFrame(text, source);
  if (type === 'stdout' || type === 'stderr') return { item: { type, data: readString(frame, 'data') } };
  if (type !== 'exit') return undefined;
  return { final: { exitCode: Number(readString(frame, 'data')), timedOut: readFlag(frame, 'timed_out') } };
}

/** Runs a command to its end, telling what it writes meanwhile. */
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
    // A listener that throws ends the command.
    await chunks.return({ exitCode: -1, timedOut: false });
    throw error;
  }
}
