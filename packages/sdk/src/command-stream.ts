import { CoppiceError } from './errors.ts';
import { readEventData } from './event-stream.ts';
import { buildExecRequest, type ExecOptions, type ExecResult } from './exec.ts';
import { labelOf, type Transport } from './transport.ts';
import { readFlag, readObject, readString } from './wire.ts';

/** A piece of what a command writes: text, cut between characters. */
export interface OutputChunk {
  type: 'stdout' | 'stderr';
  data: string;
}

/** How a streamed command ended. */
export type CommandExit = Pick<ExecResult, 'exitCode' | 'timedOut'>;

/** Called with each piece in order; a promise is waited for, and the command waits with it. */
export interface OutputListeners {
  onStdout?: ((data: string) => void | Promise<void>) | undefined;
  onStderr?: ((data: string) => void | Promise<void>) | undefined;
}

/** Of each of the two streams, in characters, as the service keeps of a buffered command. */
const MAX_COLLECTED = 16 * 2 ** 20;
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
  const body = await transport.callStream({ ...request, timeoutMs: transport.timeoutMs });
  for await (const data of readEventData(body, MAX_FRAME_LENGTH)) {
    const frame = readObject(JSON.parse(data), 'a frame');
    const type = readString(frame, 'type');
    if (type === 'stdout' || type === 'stderr') yield { type, data: readString(frame, 'data') };
    else if (type === 'exit')
      return { exitCode: Number(readString(frame, 'data')), timedOut: readFlag(frame, 'timed_out') };
    else if (type === 'error') throw buildFrameError(labelOf(request), frame);
  }
  throw new CoppiceError(`${labelOf(request)}: the stream ended before the command did`, {
    status: 0,
    code: 'connection_failed',
  });
}

/** Runs a command to its end, telling what it writes meanwhile. */
export async function execWithListeners(
  chunks: AsyncGenerator<OutputChunk, CommandExit>,
  { onStdout, onStderr }: OutputListeners,
): Promise<ExecResult> {
  const collected = { stdout: '', stderr: '' };
  let truncated = false;
  try {
    for (;;) {
      const next = await chunks.next();
      if (next.done === true) return { ...next.value, ...collected, truncated };
      const { type, data } = next.value;
      const room = MAX_COLLECTED - collected[type].length;
      collected[type] += data.slice(0, room);
      truncated ||= data.length > room;
      await (type === 'stdout' ? onStdout : onStderr)?.(data);
    }
  } catch (error) {
    // A listener that throws ends the command.
    await chunks.return({ exitCode: -1, timedOut: false });
    throw error;
  }
}

function buildFrameError(label: string, frame: Readonly<Record<string, unknown>>): CoppiceError {
  const error = readObject(frame['error'], 'error');
  const detail = readString(error, 'message');
  const requestId = error['request_id'];
  return new CoppiceError(`HTTP 200 from ${label}, which failed under way: ${detail}`, {
    status: 200,
    code: readString(error, 'code'),
    requestId: typeof requestId === 'string' ? requestId : undefined,
    detail,
  });
}
