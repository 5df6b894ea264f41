/**
 * Sends one question to one upstream resolver. Each exchange uses a random id and a new connected socket, for which the
 * kernel picks a random source port and drops packets from other addresses. An answer thus cannot be forged by
 * guessing.
 */
import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { connect, isIPv6 } from 'node:net';
import { withDeadline } from '../../lib/waiting/deadline.ts';
import { readId } from './dns-header.ts';
import { isAnswerTo, withId } from './dns-message.ts';
import { DnsStreamDecoder, encodeStreamMessage } from './dns-stream.ts';
import type { UpstreamResolver } from './upstream-resolvers.ts';

const ID_COUNT = 0x1_00_00;
const MAX_ANSWER_BYTES = 0xff_ff;

export type Transport = 'udp' | 'tcp';

/** Returns the upstream's answer with the id of `query`. Rejects when there is none within `timeoutMs`. */
export async function exchange(
  transport: Transport,
  upstream: UpstreamResolver,
  query: Buffer,
  timeoutMs: number,
): Promise<Buffer> {
  const asked = withId(query, randomInt(ID_COUNT));
  const conversation = transport === 'udp' ? askByUdp(upstream, asked) : askByTcp(upstream, asked);
  const step = `answer of resolver ${upstream.address} by ${transport}`;
  try {
    return withId(await withDeadline(step, timeoutMs, conversation.answer), readId(query));
  } finally {
    conversation.end();
  }
}

interface Conversation {
  answer: Promise<Buffer>;
  end(): void;
}

function askByUdp({ address, port }: UpstreamResolver, query: Buffer): Conversation {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4');
  socket.on('error', reject);
  socket.on('message', (message) => {
    if (isAnswerTo(query, message)) resolve(message);
  });
  socket.on('connect', () => socket.send(query));
  socket.connect(port, address);
  return { answer: promise, end: () => socket.close() };
}

function askByTcp({ address, port }: UpstreamResolver, query: Buffer): Conversation {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const decoder = new DnsStreamDecoder(MAX_ANSWER_BYTES);
  const socket = connect({ host: address, port });
  socket.on('error', reject);
  socket.on('close', () => reject(new Error(`resolver ${address} closed the connection without an answer`)));
  socket.on('data', (chunk) => {
    const answer = decoder.push(chunk).find((message) => isAnswerTo(query, message));
    if (answer !== undefined) resolve(answer);
  });
  socket.write(encodeStreamMessage(query));
  return { answer: promise, end: () => socket.destroy() };
}
