import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseListeningPorts } from './listening-ports.ts';
import { isPageUrl, parsePort } from './port-field.ts';

const HEAD =
  '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode';
const line = (local: string, state = '0A', remote = '00000000:0000'): string =>
  `   0: ${local} ${remote} ${state} 00000000:00000000 00:00000000 00000000     0        0 10511 1 00000000e0c5bd63 100 0 0 10 0`;
const V6 = '0'.repeat(32);

test('listening ports are read from the tables of the kernel, lowest first', () => {
  const tables = [
    HEAD,
    line('00000000:1F40'),
    line('0100007F:0BB8'),
    line('0100007F:1F90', '01'),
    line(`${V6}:0016`, '0A', `${V6}:0000`),
    line(`${'0'.repeat(24)}01000000:1435`, '0A', `${V6}:0000`),
  ].join('\n');
  assert.deepEqual(parseListeningPorts(tables), [
    { port: 22, isLoopback: false },
    { port: 3000, isLoopback: true },
    { port: 5173, isLoopback: true },
    { port: 8000, isLoopback: false },
  ]);
});

test('a port on loopback and elsewhere counts as one that listens elsewhere', () => {
  const lines = [line('0100007F:0BB8'), line('00000000:0BB8')];
  for (const tables of [lines, lines.toReversed()])
    assert.deepEqual(parseListeningPorts(tables.join('\n')), [{ port: 3000, isLoopback: false }]);
});

test('a table that the guest made up has no more effect than ports', () => {
  const many = Array.from({ length: 500 }, (_, port) =>
    line(`00000000:${(port + 1).toString(16).toUpperCase().padStart(4, '0')}`),
  );
  assert.equal(parseListeningPorts(many.join('\n')).length, 50);
  assert.deepEqual(parseListeningPorts(`${line('00000000:0000')}\n<b>: 0A`), []);
});

test('a port is a whole number from 1 to 65535', () => {
  assert.equal(parsePort(' 8080 '), 8080);
  for (const text of ['', '0', '65536', '80.5', '1e3', '-1', '0x50', '8080/tcp'])
    assert.equal(parsePort(text), undefined, text);
});

test('only pages are opened', () => {
  assert.equal(isPageUrl('http://3000-run.localhost:8080/.well-known/coppice/preview?token=x'), true);
  for (const url of ['javascript:alert(1)', 'data:text/html,x', '//x', ''])
    assert.equal(isPageUrl(url), false, url);
});
