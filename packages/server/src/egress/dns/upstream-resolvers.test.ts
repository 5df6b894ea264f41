import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { parseResolvConf, parseResolver, UpstreamResolvers } from './upstream-resolvers.ts';

const log = pino({ level: 'silent' });

async function listFrom(
  files: { resolvConf?: string; systemd?: string },
  excluded: string[] = [],
): Promise<string[]> {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-resolvers-'));
  try {
    const [resolvConfPath, systemdResolvConfPath] = [
      join(directory, 'resolv.conf'),
      join(directory, 'systemd'),
    ];
    if (files.resolvConf !== undefined) writeFileSync(resolvConfPath, files.resolvConf);
    if (files.systemd !== undefined) writeFileSync(systemdResolvConfPath, files.systemd);
    const resolvers = new UpstreamResolvers({
      configured: undefined,
      excluded,
      log,
      resolvConfPath,
      systemdResolvConfPath,
    });
    return (await resolvers.list()).map(({ address }) => address);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test('a resolver is an address with or without a port', () => {
  assert.deepEqual(parseResolver('192.0.2.1'), { address: '192.0.2.1', port: 53 });
  assert.deepEqual(parseResolver('192.0.2.1:5353'), { address: '192.0.2.1', port: 5353 });
  assert.deepEqual(parseResolver('2001:db8::1'), { address: '2001:db8::1', port: 53 });
  assert.deepEqual(parseResolver('[2001:db8::1]:5353'), { address: '2001:db8::1', port: 5353 });
  for (const text of ['', 'dns.example', '192.0.2.1:0', '192.0.2.1:65536', '[192.0.2]:53', '192.0.2.1:53x']) {
    assert.throws(
      () => parseResolver(text),
      { code: 'invalid_request', message: /upstreamResolvers/u },
      text,
    );
  }
});

test('resolv.conf is read as other resolvers read it', () => {
  const text =
    '# nameserver 192.0.2.9\nsearch example\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 \nnameserver name\nnameserver\n';
  assert.deepEqual(parseResolvConf(text), ['192.0.2.1', '2001:db8::1']);
});

test('the real resolvers behind the stub of systemd-resolved are used', async () => {
  const stub = 'nameserver 127.0.0.53\n';
  assert.deepEqual(await listFrom({ resolvConf: stub, systemd: 'nameserver 192.0.2.1\n' }), ['192.0.2.1']);
  assert.deepEqual(await listFrom({ resolvConf: stub }), ['127.0.0.53']);
  assert.deepEqual(
    await listFrom({ resolvConf: 'nameserver 127.0.0.1\n', systemd: 'nameserver 192.0.2.1\n' }),
    ['127.0.0.1'],
  );
});

test('the forwarder’s own address is left out, the list is short, and no file means no resolver', async () => {
  const many = [1, 2, 3, 4, 5].map((n) => `nameserver 192.0.2.${n}`).join('\n');
  assert.deepEqual(await listFrom({ resolvConf: many }, ['192.0.2.1']), [
    '192.0.2.2',
    '192.0.2.3',
    '192.0.2.4',
  ]);
  assert.deepEqual(await listFrom({}), []);
});

test('configured resolvers are used instead of the host’s', async () => {
  const resolvers = new UpstreamResolvers({ configured: ['127.0.0.1:5300'], excluded: [], log });
  assert.deepEqual(await resolvers.list(), [{ address: '127.0.0.1', port: 5300 }]);
});
