/** Reads what a guest keeps of a command's output. */
import type { ClientHttp2Stream } from 'node:http2';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import { FRAME, FrameDecoder } from '../../lib/protocol/frames.ts';
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
 * breaks off. Leaving the loop ends the answer.
 */
export async function* readKeptOutput(stream: ClientHttp2Stream, offset: number): AsyncGenerator<KeptOutput> {
  const decoder = new FrameDecoder();
  const isWhole = watchEnd(stream);
  let next = offset;
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      for (const { type, payload } of decoder.push(chunk)) {
        if (type === FRAME.exit) {
          yield { type: 'exit', ...parsePayload(Exit, payload) };
          return;
        }
        if (type === FRAME.position) {
          const { position } = parsePayload(Position, payload);
          if (position > next) yield { type: 'dropped', offset: next, next_offset: position };
          next = position;
        } else if (type === FRAME.stdout || type === FRAME.stderr) {
          yield { type: type === FRAME.stdout ? 'stdout' : 'stderr', offset: next, data: payload };
          next += payload.length;
        }
      }
    }
  } catch (cause) {
    throw brokenOff(cause);
  } finally {
    if (!stream.closed) stream.destroy();
  }
  if (!isWhole() || !decoder.atBoundary) throw brokenOff();
}

function brokenOff(cause?: unknown): AppError {
  if (cause instanceof AppError) return cause;
  return new AppError(
    'guest_unreachable',
    'the output of the command broke off; continue from the last offset',
    {
      cause,
    },
  );
}
