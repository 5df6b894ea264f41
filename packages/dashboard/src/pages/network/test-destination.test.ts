import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkPolicy, findWritten } from './policy-check.ts';
import { guessProtocol, readDestination, type Protocol } from './read-target.ts';
import { testDestination } from './test-destination.ts';

interface Tried {
  allow?: string[];
  deny?: string[];
  to: string;
  address?: string;
  protocol?: Protocol;
  trusted?: string[];
}

function attempt({ allow = [], deny = [], to, address, protocol = 'tls', trusted = [] }: Tried) {
  const read = readDestination(to);
  assert(read !== undefined);
  const target = read.isAddress ? { address: read.host } : { name: read.host, address };
  return testDestination(checkPolicy({ allow, deny }, trusted), { ...target, protocol });
}

function told(tried: Tried): string {
  const { verdict, rule } = attempt(tried);
  return rule === undefined ? verdict : `${verdict} by ${rule.list}[${rule.index}]`;
}

test('the tester names the rule that decides, as it is written', () => {
  const allow = ['other.example', 'API.Example.com.', '*.example.org', '203.0.113.0/24'];
  assert.equal(told({ allow, to: 'api.example.com' }), 'allow by allow[1]');
  assert.equal(told({ allow, to: 'a.b.example.org' }), 'allow by allow[2]');
  assert.equal(told({ allow, to: '203.0.113.9' }), 'allow by allow[3]');
  assert.equal(attempt({ allow, to: 'api.example.com' }).rule?.text, 'API.Example.com.');
  const deny = ['x.example.org'];
  assert.equal(told({ allow, deny, to: 'x.example.org' }), 'refuse by deny[0]');
});

test('without a matching rule, the default decides', () => {
  assert.equal(told({ to: 'example.com' }), 'allow');
  assert.equal(told({ deny: ['*.example.org'], to: 'example.com' }), 'allow');
  assert.equal(told({ allow: ['api.example.com'], to: 'example.com' }), 'refuse');
  assert.equal(told({ deny: ['0.0.0.0/0'], to: 'example.com' }), 'refuse');
  assert.match(attempt({ allow: ['api.example.com'], to: 'example.com' }).reason, /refuses the rest/u);
});

test('closed addresses are refused whatever the rules say, unless the service is known to have opened them', () => {
  assert.equal(attempt({ to: '10.0.0.1' }).code, 'private_address');
  assert.equal(attempt({ to: '169.254.169.254' }).code, 'reserved_address');
  assert.equal(attempt({ to: 'example.com', address: '127.0.0.1' }).code, 'reserved_address');
  assert.equal(
    told({ allow: ['10.1.0.0/16'], trusted: ['10.1.0.0/16'], to: '10.1.2.3' }),
    'allow by allow[0]',
  );
  assert.equal(attempt({ to: '2001:db8::1' }).verdict, 'refuse');
});

test('a connection without a readable name is judged by its address', () => {
  const allow = ['api.example.com'];
  assert.equal(attempt({ allow, to: '203.0.113.1', protocol: 'tls' }).code, 'name_hidden');
  assert.equal(attempt({ allow, to: '203.0.113.1', protocol: 'http' }).code, 'name_missing');
  assert.equal(attempt({ allow, to: 'api.example.com', protocol: 'other' }).code, 'name_missing');
  const both = ['api.example.com', '203.0.113.1'];
  assert.equal(told({ allow: both, to: 'api.example.com', protocol: 'other' }), 'depends');
  const address = '203.0.113.1';
  assert.equal(told({ allow: both, to: 'api.example.com', address, protocol: 'other' }), 'allow by allow[1]');
});

test('UDP passes only where nothing is restricted', () => {
  assert.equal(told({ to: 'example.com', protocol: 'udp' }), 'allow');
  assert.equal(
    attempt({ allow: ['example.com'], to: 'example.com', protocol: 'udp' }).code,
    'protocol_not_allowed',
  );
  assert.equal(attempt({ to: '10.0.0.1', protocol: 'udp' }).code, 'private_address');
});

test('the address to which an allowed name resolves must not be denied', () => {
  const policy = { allow: ['api.example.com'], deny: ['203.0.113.0/24'], to: 'api.example.com' };
  assert.match(attempt(policy).reason, /must not be in a denied range/u);
  assert.equal(told({ ...policy, address: '203.0.113.9' }), 'refuse by deny[0]');
  assert.equal(told({ ...policy, address: '198.51.100.9' }), 'allow by allow[0]');
});

test('what depends on the hosts of a registry is said to depend on them', () => {
  const result = attempt({ allow: ['registry:npm', 'a.example'], to: 'registry.npmjs.org' });
  assert.equal(result.verdict, 'depends');
  assert.match(result.reason, /registry:npm/u);
  assert.equal(told({ allow: ['registry:npm', 'a.example'], to: 'a.example' }), 'allow by allow[1]');
  assert.equal(told({ deny: ['registry:npm'], to: 'example.com' }), 'depends');
});

test('faults and warnings are those of the service', () => {
  assert.match(
    checkPolicy({ allow: ['https://a.example'], deny: [] }).fault ?? '',
    /network\.allow\[0\].*is a URL/u,
  );
  assert.match(
    checkPolicy({ allow: ['a.example'], deny: ['a.example'] }).fault ?? '',
    /contradicts network\.deny\[0\]/u,
  );
  assert.match(checkPolicy({ allow: ['10.0.0.0/8'], deny: [] }).fault ?? '', /COPPICE_OPEN_PRIVATE_RANGES/u);
  assert.match(checkPolicy({ allow: ['x'.repeat(600)], deny: [] }).fault ?? '', /network\.allow\[0\]/u);
  assert.match(
    checkPolicy({ allow: ['b.example', '*.example'], deny: ['*.example'] }).fault ?? '',
    /contradicts/u,
  );
  assert.match(
    checkPolicy({ allow: ['a.b.example'], deny: ['*.example'] }).warnings[0] ?? '',
    /never applies/u,
  );
  assert.deepEqual(findWritten(['A.example'], 'b.example'), undefined);
});

test('destinations are read as people write them', () => {
  assert.deepEqual(readDestination(' '), undefined);
  for (const [text, host, port, isAddress] of [
    ['api.example.com', 'api.example.com', undefined, false],
    ['api.example.com:8443', 'api.example.com', 8443, false],
    ['https://api.example.com/v1?a=b', 'api.example.com', 443, false],
    ['http://203.0.113.7:81/', '203.0.113.7', 81, true],
    ['203.0.113.7:22', '203.0.113.7', 22, true],
    ['[2001:db8::1]:443', '2001:db8::1', 443, true],
    ['2001:db8::1', '2001:db8::1', undefined, true],
    ['api.example.com:99999', 'api.example.com', undefined, false],
  ] as const)
    assert.deepEqual(readDestination(text), { host, port, isAddress }, text);
  assert.deepEqual([80, 22, 443, 9999].map(guessProtocol), ['http', 'other', 'tls', 'tls']);
});
