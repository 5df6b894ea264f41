/** Reads what a guest keeps of a command's output. The guest may send anything. */
import type { ClientHttp2Stream } from 'node:http2';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { FRAME, FrameDecoder, type Frame } from '../../lib/protocol/frames.ts';
import { watchEnd } from '../../lib/streams/whole-stream.ts';
import { parsePayload } from '../streams/guest-stream.ts';
import { Exit } from '../streams/running-command.ts';

const Position = z.object({ position: z.int().min(0).max(Number.MAX_SAFE_INTEGER) });

export type KeptOutput =
  | { type: 'stdout' | 'stderr'; offset: number; data: Buffer }
  /** The output between the offsets has been dropped. */
  | { type: 'dropped'; offset: number; next_offset: number }
  | ({ type: 'exit' } & Exit);

/**
 * Yields output from `offset` on; the exit is the last, if the command has ended. Throws `guest_unreachable` if the answer
 * breaks off, or violates the protocol. Leaving the loop ends the answer.
 */
export async function* readKeptOutput(stream: ClientHttp2Stream, offset: number): AsyncGenerator<KeptOutput> {
  const decoder = new FrameDecoder();
  const isWhole = watchEnd(stream);
  let next = offset;
  let isFirst = true;
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      for (const frame of decoder.push(chunk)) {
        const output = readFrame(frame, next, isFirst);
        isFirst = false;
        if (output === undefined) continue;
        if (output.type === 'dropped') next = output.next_offset;
        else if (output.type !== 'exit') next += output.data.length;
        yield output;
        if (output.type === 'exit') return;
      }
    }
  } catch (cause) {
    throw brokenOff(cause);
  } finally {
    if (!stream.closed) stream.destroy();
  }
  if (!isWhole() || !decoder.atBoundary) throw brokenOff();
}

/** Returns undefined for a frame that says nothing new. Only the first position may be before the asked offset. */
function readFrame({ type, payload }: Frame, next: number, isFirst: boolean): KeptOutput | undefined {
  if (type === FRAME.exit) return { type: 'exit', ...parsePayload(Exit, payload) };
  if (type === FRAME.position) {
    const { position } = parsePayload(Position, payload);
    if (position > next) return { type: 'dropped', offset: next, next_offset: position };
    if (position === next || isFirst) return undefined;
  } else if (type === FRAME.stdout || type === FRAME.stderr) {
    const isSafe = payload.length > 0 && Number.isSafeInteger(next + payload.length);
    if (isSafe) return { type: type === FRAME.stdout ? 'stdout' : 'stderr', offset: next, data: payload };
  } else return undefined;
  throw new AppError('guest_unreachable', 'the agent violated its protocol');
}

function brokenOff(cause?: unknown): AppError {
  if (cause instanceof AppError) return cause;
  return new AppError(
    'guest_unreachable',
    'the output of the command broke off; continue from the last offset',
    { cause },
  );
}
