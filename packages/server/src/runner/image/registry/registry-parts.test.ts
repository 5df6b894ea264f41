import assert from 'node:assert/strict';
import { networkInterfaces } from 'node:os';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import fc from 'fast-check';
import { isPrivateAddress } from './address-policy.ts';
import { parseChallenges } from './challenge.ts';
import { isProxied, readProxySettings } from './proxy.ts';
import { RegistryEndpoints } from './registry-settings.ts';

function challenges(header: string) {
  return parseChallenges(header).map(({ scheme, parameters }) => [scheme, Object.fromEntries(parameters)]);
}

test('one or several challenges are parsed, with quotes, commas and escapes', () => {
  assert.deepEqual(challenges('Bearer realm="https://a/t?x=1,2",service="s \\"q\\" s", scope=a:b'), [
    ['bearer', { realm: 'https://a/t?x=1,2', service: 's "q" s', scope: 'a' }],
  ]);
  assert.deepEqual(challenges('Negotiate, BASIC Realm="r", Bearer realm="t"'), [
    ['negotiate', {}],
    ['basic', { realm: 'r' }],
    ['bearer', { realm: 't' }],
  ]);
  assert.deepEqual(challenges('NTLM dGVzdA==, Basic realm=x'), [
    ['ntlm', {}],
    ['basic', { realm: 'x' }],
  ]);
  assert.deepEqual(challenges('Bearer realm="a", realm="b"'), [['bearer', { realm: 'a' }]]);
  for (const header of ['', '"', '=', 'realm="x"', ',,', 'x'.repeat(10_000)]) assert.ok(challenges(header));
});

test('any header is parsed quickly', () => {
  const characters = fc.constantFrom('a', '"', '\\', '=', ',', ' ', 'Basic', 'realm', '\t', '==', ';');
  fc.assert(
    fc.property(fc.array(characters, { maxLength: 200 }), (parts) => {
      const started = performance.now();
      parseChallenges(parts.join(''));
      assert.ok(performance.now() - started < 500);
    }),
  );
});

test('private, local and special addresses, and those of this machine, are refused', () => {
  const own = Object.values(networkInterfaces()).flatMap((entries) => entries ?? []);
  const refused = [
    '127.0.0.1',
    '10.1.2.3',
    '172.31.0.1',
    '192.168.0.1',
    '169.254.169.254',
    '100.64.0.1',
    '0.0.0.0',
    '224.0.0.1',
    '255.255.255.255',
    '198.18.0.1',
    '::1',
    '::',
    'fd00::1',
    'fe80::1%eth0',
    'ff02::1',
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    '64:ff9b::a00:1',
    '2002:a00:1::',
    'not an address',
    '',
    ...own.map(({ address }) => address),
  ];
  for (const address of refused) assert.ok(isPrivateAddress(address), address);
  for (const address of ['93.184.216.34', '8.8.8.8', '2606:2800:220:1::1', '172.32.0.1']) {
    assert.equal(isPrivateAddress(address), false, address);
  }
});

test('a registry is reached under its own name, at its mirror, or with both schemes', () => {
  const endpoints = new RegistryEndpoints({
    mirrors: { 'docker.io': 'http://127.0.0.1:5000/hub/', 'ghcr.io': 'https://ghcr.io' },
    insecureRegistries: ['localhost:5001', '[::1]:5002', 'docker.io'],
  });
  const origins = (registry: string) => endpoints.find(registry).map(({ origin }) => origin);
  assert.deepEqual(origins('docker.io'), ['http://127.0.0.1:5000']);
  assert.equal(endpoints.find('docker.io')[0].repositoryPrefix, 'hub/');
  assert.equal(endpoints.find('docker.io')[0].takesCredentials, false);
  assert.equal(endpoints.find('ghcr.io')[0].takesCredentials, true, 'the mirror is the registry itself');
  assert.deepEqual(origins('localhost:5001'), ['https://localhost:5001', 'http://localhost:5001']);
  assert.deepEqual(origins('[::1]:5002'), ['https://[::1]:5002', 'http://[::1]:5002']);
  assert.deepEqual(origins('quay.io'), ['https://quay.io']);
  assert.deepEqual(new RegistryEndpoints({ mirrors: {}, insecureRegistries: [] }).find('docker.io'), [
    {
      origin: 'https://registry-1.docker.io',
      repositoryPrefix: '',
      isConfigured: false,
      takesCredentials: true,
    },
  ]);
  for (const [url, isConfigured] of [
    ['http://127.0.0.1:5000', true],
    ['http://127.0.0.1:5003', false],
    ['https://localhost:5001', true],
    ['http://localhost', false],
    ['https://ghcr.io:443', true],
    ['http://ghcr.io', false],
  ] as const) {
    assert.equal(endpoints.isConfigured(new URL(url)), isConfigured, url);
  }
});

test('the error for an invalid setting names the setting', () => {
  const refuse = (mirrors: Record<string, string>, insecureRegistries: string[] = []) =>
    assert.throws(
      () => new RegistryEndpoints({ mirrors, insecureRegistries }),
      (error) =>
        error instanceof AppError &&
        error.code === 'invalid_request' &&
        /^(?:mirrors|insecure)/u.test(error.message),
      JSON.stringify([mirrors, insecureRegistries]),
    );
  for (const url of ['mirror.example', 'ftp://x', '', 'http://x/?q', 'http://u:p@x', 'https://x/UPPER']) {
    refuse({ 'docker.io': url });
  }
  refuse({ 'a"\nb': 'http://x' });
  refuse({}, ['http://x']);
  refuse({}, ['x:99999']);
});

test('the host’s proxy settings are read as other programs read them', () => {
  const settings = readProxySettings({
    http_proxy: 'http://small:1',
    HTTP_PROXY: 'http://big:1',
    HTTPS_PROXY: 'http://p:1',
    NO_PROXY: 'a.example, .b.example,*.c.example,10.0.0.1,d.example:8443',
  });
  assert.equal(settings.httpProxy, 'http://small:1');
  const direct = [
    'https://a.example',
    'https://x.a.example',
    'https://x.b.example',
    'http://y.c.example',

    'http://10.0.0.1',
    'https://d.example:8443',
    'http://localhost:5000',
    'http://127.0.0.1',
    'http://[::1]',
  ];
  for (const url of direct) assert.equal(isProxied(settings, new URL(url)), false, url);
  for (const url of ['https://quay.io', 'https://nota.example', 'https://d.example', 'http://10.0.0.2']) {
    assert.equal(isProxied(settings, new URL(url)), true, url);
  }
  assert.equal(isProxied(readProxySettings({}), new URL('https://quay.io')), false);
  const all = readProxySettings({ HTTPS_PROXY: 'http://p:1', NO_PROXY: '*' });
  assert.equal(isProxied(all, new URL('https://quay.io')), false);
});
