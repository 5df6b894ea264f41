import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import { pino } from 'pino';
import type { Guest } from '../guest-table.ts';
import { hearOut } from '../testing/first-words.ts';
import { TcpProxy } from './tcp-proxy.ts';

const ADDRESS = '127.0.0.1';

test('a lookup that fails ends its own connection, and the next one is served', async () => {
  const logged: string[] = [];
  const guest = { count: () => undefined, note: () => undefined } as unknown as Guest;
  let lookups = 0;
  await using proxy = await TcpProxy.listen({
    address: ADDRESS,
    guests: { findByAddress: () => guest },
    upstream: {} as never,
    maxFlows: 10,
    findDestination: async () => {
      lookups += 1;
      if (lookups === 1) throw new Error('the kernel answered nonsense');
      return undefined;
    },
    log: pino({ level: 'warn' }, { write: (line: string) => void logged.push(line) }),
  });
  for (let attempt = 0; attempt < 2; attempt += 1)
    assert.equal(await hearOut(connect(proxy.port, ADDRESS)), 'ECONNRESET');
  assert.equal(lookups, 2);
  assert.match(logged.join(''), /the kernel answered nonsense/u);
});

test('a connection beyond the limit of its guest is noted and reset, and does not count against other guests', async () => {
  const noted: unknown[] = [];
  const guest = { count: () => undefined, note: (note: unknown) => noted.push(note) } as unknown as Guest;
  await using proxy = await TcpProxy.listen({
    address: ADDRESS,
    guests: { findByAddress: () => guest },
    upstream: {} as never,
    maxFlows: 10,
    maxFlowsPerGuest: 0,
    findDestination: async () => ({ address: '203.0.113.1', port: 0 }),
    log: pino({ level: 'silent' }),
  });
  assert.equal(await hearOut(connect(proxy.port, ADDRESS)), 'ECONNRESET');
  assert.equal(noted.length, 1);
});
