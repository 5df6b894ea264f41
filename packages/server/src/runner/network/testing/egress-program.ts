/**
 * A stand-in for the egress process, with the same listeners and messages. It judges nothing, and answers each
 * connection with the listener and the guest. It forwards DNS queries unchanged to the first resolver. Its count of
 * refused names is the number of host addresses that it received last.
 */
import { createSocket, type RemoteInfo } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import type { EgressMessage, EgressStart, RunnerMessage } from '../../../lib/protocol/egress-messages.ts';
import { NO_JUDGED_COUNTERS } from '../../../lib/protocol/egress-protocol.ts';

const DNS_PORT = 53;
const guests = new Map<string, { vmId: string; grants: number }>();
let batches = 0;
let closed: EgressStart['closed'] = { openPrivateRanges: [], own: [] };

function say(message: EgressMessage): void {
  process.send?.(message);
}

async function listenTcp(host: string, serve: (socket: Socket) => void): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => socket.destroy());
    serve(socket);
  });
  server.listen(0, host);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

async function listenUdp(
  host: string,
  serve: (query: Buffer, from: RemoteInfo) => Promise<Buffer>,
): Promise<number> {
  const socket = createSocket('udp4');
  socket.on('message', (query, from) => {
    void serve(query, from).then((answer) => socket.send(answer, from.port, from.address));
  });
  socket.bind(0, host);
  await once(socket, 'listening');
  return socket.address().port;
}

/** Reports the guest of an accepted connection: to the guest, and to the runner as a refusal. */
function tell(listener: string): (socket: Socket) => void {
  return (socket) => {
    const guest = guests.get(socket.remoteAddress ?? '');
    if (guest === undefined) {
      socket.resetAndDestroy();
      return;
    }
    batches += 1;
    const data = { domain: listener, reason: 'not_allowed', count: 1 };
    const note = { event: 'network.blocked' as const, ts: new Date().toISOString(), data };
    say({ type: 'notes', id: batches, notes: [{ vmId: guest.vmId, note }] });
    socket.write(`${listener} ${guest.vmId} ${guest.grants}`);
  };
}

async function start({ resolver, resolvers, closed: own }: EgressStart): Promise<void> {
  closed = own;
  const [upstream = ''] = resolvers;
  const ports = {
    dnsUdp: await listenUdp(resolver, async (query) => {
      const socket = createSocket('udp4');
      socket.send(query, DNS_PORT, upstream);
      const [answer] = (await once(socket, 'message')) as [Buffer];
      socket.close();
      return answer;
    }),
    dnsTcp: await listenTcp(resolver, (socket) => {
      const onward = connect(DNS_PORT, upstream);
      onward.on('error', () => socket.destroy());
      socket.pipe(onward).pipe(socket);
    }),
    proxy: await listenTcp(resolver, tell('proxy')),
    credentials: await listenTcp(resolver, tell('credentials')),
  };
  say({ type: 'ready', ports });
}

function hear(message: RunnerMessage): void {
  switch (message.type) {
    case 'start':
      return void start(message);
    case 'guest': {
      const { id, address, vmId, egress } = message;
      if (egress.network.profile === 'refused')
        return say({ type: 'done', id, error: 'the policy is refused' });
      // Simulates a process that hangs.
      if (egress.network.profile === 'unanswered') return;
      guests.set(address, { vmId, grants: egress.grants.length });
      return say({ type: 'done', id });
    }
    case 'forget':
      guests.delete(message.address);
      return say({ type: 'done', id: message.id });
    case 'closed':
      ({ closed } = message);
      return say({ type: 'done', id: message.id });
    case 'counters': {
      const counters = { ...NO_JUDGED_COUNTERS, names_resolved: 7, names_refused: closed.own.length };
      return say({
        type: 'counters',
        id: message.id,
        counters: guests.has(message.address) ? counters : null,
      });
    }
    case 'noted':
  }
}

process.on('message', (message) => hear(message as RunnerMessage));
process.on('disconnect', () => process.exit());
