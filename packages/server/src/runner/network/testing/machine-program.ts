/**
 * The program inside a test machine (machine.ts). It runs in its own network namespace, handles one call per message
 * from the test, and answers with the result.
 */
import { execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer, Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { openTapDevice } from './tap-device.ts';
import { encodeStreamMessage, DnsStreamDecoder } from '../../../egress/dns/dns-stream.ts';
import type { MachineCalls } from './machine.ts';
import { sendRaw } from './raw-packet.ts';

/** The number under which the test passes the descriptor of the guest's TAP, as it would to QEMU. */
const TAP_FD = 4;

const received: { from: string; text: string }[] = [];
let connections = 0;
let held: Socket | undefined;

const calls: MachineCalls = {
  ip: async (commands) => {
    execFileSync('ip', ['-batch', '-'], { input: commands.join('\n') });
  },
  plugTap: async ({ mac, mtu }) => {
    execFileSync('ip', ['tuntap', 'add', 'dev', 'eth0', 'mode', 'tap', 'vnet_hdr']);
    execFileSync('ip', ['link', 'set', 'eth0', 'address', mac, 'mtu', String(mtu), 'up']);
    const wire = new Worker(new URL('frame-pump.ts', import.meta.url), {
      workerData: [TAP_FD, openTapDevice('eth0')],
    });
    await once(wire, 'online');
  },
  serve: async ({ tcpPorts, udpPorts }) => {
    await Promise.all([...tcpPorts.map(serveTcp), ...udpPorts.map(serveUdp)]);
  },
  serveDns: async ({ answer }) => {
    await Promise.all([serveDnsOverUdp(answer), serveDnsOverTcp(answer)]);
  },
  connectTcp: (options) => exchangeTcp(options),
  sendUdp: (options) => exchangeUdp(options),
  sendUdpFrom: async ({ localPort, host, port, text }) => {
    const socket = createSocket({ type: 'udp4', reuseAddr: true });
    await new Promise<void>((resolve) => socket.bind(localPort, resolve));
    await new Promise<void>((resolve) => socket.send(text, port, host, () => resolve()));
    socket.close();
  },
  holdTcp: async ({ host, port, timeoutMs }) => {
    const socket = connect({ host, port });
    await once(socket, 'connect', { signal: AbortSignal.timeout(timeoutMs) });
    // The connection may end before the test uses it.
    socket.on('error', () => socket.destroy());
    held = socket;
  },
  useHeldTcp: ({ payloadHex, timeoutMs }) => awaitAnswer(held ?? new Socket(), { payloadHex, timeoutMs }),
  sendRaw: async ({ host, protocol }) => sendRaw(host, protocol),
  seen: async () => ({ datagrams: received, connections }),
};

async function serveTcp(port: number): Promise<void> {
  const server = createServer((socket) => {
    connections += 1;
    socket.on('error', () => socket.destroy());
    socket.end(socket.remoteAddress?.replace(/^::ffff:/u, '') ?? '');
  });
  await new Promise<void>((resolve) => server.listen(port, resolve));
}

async function serveUdp(port: number): Promise<void> {
  const socket = createSocket({ type: 'udp4', reuseAddr: true });
  socket.on('message', (message, from) => {
    received.push({ from: from.address, text: message.toString() });
    socket.send(`${from.address}:${from.port}`, from.port, from.address);
  });
  await new Promise<void>((resolve) => socket.bind(port, resolve));
}

/** Returns the answer to any query: its own bytes with the answer bit, and the given text as its tail. */
function answerDns(query: Buffer, tail: string): Buffer {
  const answer = Buffer.concat([query, Buffer.from(tail)]);
  answer.writeUInt16BE(answer.readUInt16BE(2) | 0x8000, 2);
  return answer;
}

async function serveDnsOverUdp(tail: string): Promise<void> {
  const socket = createSocket('udp4');
  socket.on('message', (query, from) => socket.send(answerDns(query, tail), from.port, from.address));
  await new Promise<void>((resolve) => socket.bind(53, resolve));
}

async function serveDnsOverTcp(tail: string): Promise<void> {
  const server = createServer((socket) => {
    const decoder = new DnsStreamDecoder(4096);
    socket.on('error', () => socket.destroy());
    socket.on('data', (chunk) => {
      for (const query of decoder.push(chunk)) socket.write(encodeStreamMessage(answerDns(query, tail)));
    });
  });
  await new Promise<void>((resolve) => server.listen(53, resolve));
}

function exchangeTcp(options: Parameters<MachineCalls['connectTcp']>[0]): Promise<string> {
  const { host, port, localAddress } = options;
  const socket = connect({ host, port, ...(localAddress === undefined ? {} : { localAddress }) });
  return awaitAnswer(socket, options).finally(() => socket.destroy());
}

function awaitAnswer(socket: Socket, options: { payloadHex?: string; timeoutMs: number }): Promise<string> {
  const { payloadHex, timeoutMs } = options;
  const { promise, resolve } = Promise.withResolvers<string>();
  const timer = setTimeout(() => resolve('timeout'), timeoutMs);
  socket.on('error', (error) => resolve((error as NodeJS.ErrnoException).code ?? 'error'));
  socket.on('data', (chunk) => resolve(payloadHex === undefined ? chunk.toString() : chunk.toString('hex')));
  socket.on('close', () => resolve('closed'));
  if (payloadHex !== undefined) socket.write(Buffer.from(payloadHex, 'hex'));
  return promise.finally(() => clearTimeout(timer));
}

function exchangeUdp(options: Parameters<MachineCalls['sendUdp']>[0]): Promise<string> {
  const { host, port, payloadHex, localAddress, timeoutMs } = options;
  const { promise, resolve } = Promise.withResolvers<string>();
  const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
  const timer = setTimeout(() => resolve('timeout'), timeoutMs);
  socket.on('error', (error) => resolve((error as NodeJS.ErrnoException).code ?? 'error'));
  socket.on('message', (message) => resolve(message.toString('hex')));
  socket.bind(0, localAddress, () => socket.send(Buffer.from(payloadHex, 'hex'), port, host));
  return promise.finally(() => {
    clearTimeout(timer);
    socket.close();
  });
}

process.on('message', (message: { id: number; call: keyof MachineCalls; argument: never }) => {
  calls[message.call](message.argument).then(
    (result) => process.send?.({ id: message.id, result }),
    (error: unknown) => process.send?.({ id: message.id, error: String(error) }),
  );
});
process.on('disconnect', () => process.exit());
process.send?.({ id: 0, result: 'ready' });
