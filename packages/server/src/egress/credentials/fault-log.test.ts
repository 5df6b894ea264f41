import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { FaultLog } from './fault-log.ts';
import { ProxyFault } from './request/proxy-fault.ts';

test('each kind of fault of a service is logged at most once per interval, without data of the service', () => {
  const lines: string[] = [];
  const faults = new FaultLog(pino({}, { write: (line: string) => void lines.push(line) }));
  const cause = Object.assign(new Error('canary'), { code: 'HPE_INVALID_CONSTANT', rawPacket: 'canary' });
  for (let round = 0; round < 1_000; round += 1) {
    faults.tell('vm', 'openai', new ProxyFault('upstream_malformed', { cause }));
    faults.tell('vm', 'openai', new ProxyFault('upstream_timeout'));
    faults.tell('vm', 'github', new ProxyFault('upstream_malformed', { cause }));
    faults.tell('vm', 'openai', new ProxyFault('ended', { cause }));
  }
  assert.equal(lines.length, 3);
  assert.ok(!lines.join('').includes('canary'));
  assert.match(lines[0] ?? '', /"fault":"upstream_malformed","cause":"HPE_INVALID_CONSTANT"/u);
});
