import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { execFileSync } from 'node:child_process';
import { withDeadline, pollUntil } from '../../lib/deadline.ts';
import { GuestNetwork } from './guest-network.ts';
import { HOST, INTERNET, listInterfaceNames, OPTIONS, runNft, TestSite } from './testing/test-site.ts';
import type { Machine } from './testing/machine.ts';

const REFUSED_TIMEOUT_MS = 700;
const ANSWER_TIMEOUT_MS = 5000;
const TEXT_HEX = Buffer.from('hello').toString('hex');
/** example.com A, id 0x1234 */
const QUERY_HEX = '12340100000100000000000007' + '6578616d706c6503636f6d0000010001';

function get(machine: Machine, host: string, port: number, timeoutMs = ANSWER_TIMEOUT_MS): Promise<string> {
  return machine.call('connectTcp', { host, port, timeoutMs });
}

/** The port on all addresses of the host, as the API with a careless configuration. */
async function listenOnHost(): Promise<{ port: number; connections: () => number } & Disposable> {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.on('error', () => socket.destroy());
    socket.end('host');
  });
  server.listen(0);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { port, connections: () => connections, [Symbol.dispose]: () => void server.close() };
}

const PRIVATE = ['10.9.9.9', '172.16.5.5', '192.168.77.7', '100.100.100.200', '192.0.0.192', '198.18.0.1'];
const NEVER = ['169.254.169.254', '240.0.0.1'];

test('a guest reaches the internet under the address of the host', async () => {
  await using site = await TestSite.build(['198.51.100.1']);
  await site.internet.call('serve', { tcpPorts: [80], udpPorts: [5000] });
  const network = await site.openNetwork();
  const guest = await site.startGuest(await network.acquire('a'));
  assert.equal(await get(guest, INTERNET, 80), HOST);
  assert.equal(await get(guest, '198.51.100.1', 80), HOST);
  const udp = { host: INTERNET, port: 5000, payloadHex: TEXT_HEX, timeoutMs: ANSWER_TIMEOUT_MS };
  assert.match(Buffer.from(await guest.call('sendUdp', udp), 'hex').toString(), /^203\.0\.113\.2:/u);
});
