import assert from 'node:assert/strict';
import { test } from 'node:test';
import pino from 'pino';
import { startControl } from './control/control.ts';
import { API_KEY, prepareHarness } from './control/testing/control-harness.ts';
import { showFirstSandbox } from './first-sandbox.ts';
import { TestAuthority } from './lib/tls/testing/certificate.ts';
import { TlsSource } from './lib/tls/tls-source.ts';

test('the first sandbox runs over plain HTTP and over TLS, and the shown command reaches the service', async () => {
  using authority = new TestAuthority();
  const issued = authority.issue('first', { subjectAltName: 'DNS:sandboxes.example' });
  const source = new TlsSource(issued, pino({ level: 'silent' }));
  const curls = [
    [undefined, /curl -s http:\/\/127\.0\.0\.1:\d+\/v1\/runs -H "Authorization: Bearer cop_live_/u],
    [
      source,
      /curl -s --cacert \S+first\.pem --resolve sandboxes\.example:\d+:127\.0\.0\.1 https:\/\/sandboxes\.example:/u,
    ],
  ] as const;
  for (const [tls, curl] of curls) {
    await using harness = await prepareHarness();
    await harness.runner.start();
    harness.control = await startControl(harness.config, harness.log, { tls: tls?.pair });
    const lines: string[] = [];
    const { address } = harness.control;
    await showFirstSandbox({
      address,
      apiKey: API_KEY,
      shownKey: API_KEY,
      tls,
      say: (text) => lines.push(text),
    });
    const shown = lines.join('\n');
    assert.match(shown, /sandbox run[0-9a-f]{20} started in \d+ ms and ran:\n.*\n {2}ran echo/u);
    assert.match(shown, curl);
    assert.equal(harness.runner.vms.size, 0);
  }
});
