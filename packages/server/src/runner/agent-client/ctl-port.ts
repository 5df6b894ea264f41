/**
 * The control port of the agent (docs/reference/agent-protocol.md). Each connection carries one exchange:
 *
 *   runner  open N, marker ──►  agent drops its HTTP/2 session, sends the marker on the data port
 *   runner  ◄────── waiting N   only now may the marker, and then HTTP/2 bytes, be sent there
 *
 * Without it, a VM saved in the middle of a frame would read new bytes as the rest of the old frame.
 */
import type { Duplex } from 'node:stream';
import { withDeadline } from '../../lib/waiting/deadline.ts';

const MAX_FRAME_BYTES = 65_536;
const LENGTH_BYTES = 4;
const SUPPORTED_PROTOCOL = 1;

export class AgentProtocolError extends Error {
  constructor(message: string) {
    super(`agent protocol: ${message}`);
    this.name = 'AgentProtocolError';
  }
}

export function encodeCtlFrame(message: unknown): Buffer {
  const body = Buffer.from(JSON.stringify(message));
  const frame = Buffer.alloc(LENGTH_BYTES + body.length);
  frame.writeUInt32BE(body.length, 0);
  body.copy(frame, LENGTH_BYTES);
  return frame;
}

/**
 * Splits off the first complete frame. Returns undefined if more bytes are needed. Throws {@link AgentProtocolError} on
 * a length that the protocol does not allow, or on invalid JSON.
 */
export function decodeCtlFrame(buffer: Buffer): { message: unknown; rest: Buffer } | undefined {
  if (buffer.length < LENGTH_BYTES) return undefined;
  const length = buffer.readUInt32BE(0);
  if (length === 0 || length > MAX_FRAME_BYTES) throw new AgentProtocolError(`ctl frame of ${length} bytes`);
  if (buffer.length < LENGTH_BYTES + length) return undefined;
  const text = buffer.toString('utf8', LENGTH_BYTES, LENGTH_BYTES + length);
  try {
    return { message: JSON.parse(text) as unknown, rest: buffer.subarray(LENGTH_BYTES + length) };
  } catch (error) {
    throw new AgentProtocolError(`ctl frame is not JSON: ${String(error)}`);
  }
}

export interface Opening {
  generation: number;
  marker: string;
}

/** After a restore the line may still hold answers of an earlier generation: they are skipped. */
function isAnswerTo(message: unknown, generation: number): message is Record<string, unknown> {
  if (typeof message !== 'object' || message === null)
    throw new AgentProtocolError('ctl message is no object');
  const fields = message as Record<string, unknown>;
  if (fields['type'] !== 'waiting' || fields['generation'] !== generation) return false;
  if (fields['protocol'] !== SUPPORTED_PROTOCOL) {
    throw new AgentProtocolError(
      `the agent speaks version ${String(fields['protocol'])}, this runner ${SUPPORTED_PROTOCOL}`,
    );
  }
  return true;
}

/**
 * Asks the agent to prepare the data port for a new HTTP/2 session. `isMarked` says whether the agent sends the marker
 * and waits for it. The agent of a guest that was saved long ago may wait for silence instead.
 */
export async function openGeneration(
  socket: Duplex,
  opening: Opening,
  timeoutMs: number,
): Promise<{ isMarked: boolean }> {
  const { generation, marker } = opening;
  const done = Promise.withResolvers<{ isMarked: boolean }>();
  let buffer: Buffer = Buffer.alloc(0);
  const onData = (chunk: Buffer): void => {
    try {
      buffer = Buffer.concat([buffer, chunk]);
      for (let frame = decodeCtlFrame(buffer); frame !== undefined; frame = decodeCtlFrame(buffer)) {
        buffer = frame.rest;
        const { message } = frame;
        if (isAnswerTo(message, generation)) done.resolve({ isMarked: message['marker'] === marker });
      }
    } catch (error) {
      done.reject(error);
    }
  };
  const onEnd = (): void => done.reject(new AgentProtocolError('the ctl port closed'));
  socket.on('data', onData).on('error', onEnd).on('close', onEnd);
  try {
    socket.write(encodeCtlFrame({ type: 'open', generation, marker }));
    return await withDeadline('the agent', timeoutMs, done.promise);
  } finally {
    socket.off('data', onData).off('error', onEnd).off('close', onEnd);
  }
}
