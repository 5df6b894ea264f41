import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { allowThis, findFinalReason, isAllowedNow, listCandidates } from './allow-this.ts';
import { checkPolicy } from './policy-check.ts';
import { testDestination } from './test-destination.ts';

const NAMED = { domain: 'api.example.com', ip: '203.0.113.7', reason: 'not_allowed' };

function change(allow: string[], deny: string[], rule = 'api.example.com', refusal = NAMED) {
  const made = allowThis({ allow, deny }, refusal, { rule });
  assert(!('fault' in made), 'fault' in made ? made.fault : '');
  return made;
}

test('the name is added to a list of allowed names', () => {
  assert.deepEqual(change(['a.example'], []), {
    rules: { allow: ['a.example', 'api.example.com'], deny: [] },
    added: 'api.example.com',
    removed: [],
  });
  assert.deepEqual(change([], ['0.0.0.0/0']).rules, { allow: ['api.example.com'], deny: ['0.0.0.0/0'] });
});

test('deny rules that match are removed, of the name and of the address, and no other', () => {
  const made = change([], ['*.Example.com', '203.0.113.0/24', 'b.example']);
  assert.deepEqual(made.removed, ['*.Example.com', '203.0.113.0/24']);
  assert.deepEqual(made.rules, { allow: [], deny: ['b.example'] });
  assert.equal(made.added, undefined);
});

test('a deny rule is removed and an allow rule added where both are needed', () => {
  const made = change(['a.example'], ['api.example.com']);
  assert.deepEqual(made, {
    rules: { allow: ['a.example', 'api.example.com'], deny: [] },
    added: 'api.example.com',
    removed: ['api.example.com'],
  });
});

test('a connection without a readable name needs a rule for its address', () => {
  for (const reason of ['name_missing', 'name_hidden', 'name_invalid', 'name_late', 'name_not_resolved']) {
    const refusal = { domain: 'api.example.com', ip: '203.0.113.7', reason };
    assert.deepEqual(listCandidates(refusal), ['203.0.113.7'], reason);
    const made = change(['a.example'], [], '203.0.113.7', refusal);
    assert.equal(made.added, '203.0.113.7');
  }
});

test('candidates are the name, the names beside it, and the address', () => {
  assert.deepEqual(listCandidates(NAMED), ['api.example.com', '*.example.com', '203.0.113.7']);
  assert.deepEqual(listCandidates({ domain: 'example.com', reason: 'not_allowed' }), ['example.com']);
  assert.deepEqual(listCandidates({ ip: '203.0.113.7', reason: 'not_allowed' }), ['203.0.113.7']);
  assert.deepEqual(listCandidates({ domain: 'a.example', reason: 'name_hidden' }), []);
});

test('refusals that no policy changes are explained', () => {
  for (const reason of [
    'host_address',
    'reserved_address',
    'private_address',
    'too_many_connections',
    'protocol_not_allowed',
    'source_not_own',
  ])
    assert(findFinalReason({ ip: '203.0.113.7', reason }) !== undefined, reason);
  const made = allowThis(
    { allow: [], deny: [] },
    { ...NAMED, reason: 'host_address' },
    { rule: 'api.example.com' },
  );
  assert('fault' in made);
  assert(findFinalReason({ reason: 'not_allowed' }) !== undefined);
});

test('an address that no policy opens is a fault, also if the reason was another', () => {
  const refusal = { ip: '10.0.0.1', reason: 'not_allowed' };
  const made = allowThis({ allow: ['a.example'], deny: [] }, refusal, { rule: '10.0.0.1' });
  assert('fault' in made);
  assert.match(made.fault, /private/u);
});

test('a name that a guest made up and that is no rule is a fault', () => {
  const domain = '<img src=x>.example';
  const made = allowThis(
    { allow: ['a.example'], deny: [] },
    { domain, reason: 'not_allowed' },
    { rule: domain },
  );
  assert('fault' in made);
});

test('after the change, the connection is allowed, and everything that was allowed still is', () => {
  const names = ['a.example', 'b.example', 'api.example.com', 'x.api.example.com'];
  const rule = fc.constantFrom(
    ...names,
    '*.example.com',
    '*.example',
    '203.0.113.0/24',
    '203.0.113.7',
    '198.51.100.1',
  );
  const list = fc.uniqueArray(rule, { maxLength: 5 });
  fc.assert(
    fc.property(list, list, fc.constantFrom(...names), (allow, denied, domain) => {
      const deny = denied.filter((text) => !allow.includes(text));
      const refusal = { domain, ip: '203.0.113.7', reason: 'not_allowed' };
      const made = allowThis({ allow, deny }, refusal, { rule: domain });
      assert(!('fault' in made));
      const before = checkPolicy({ allow, deny });
      const after = checkPolicy(made.rules);
      const verdict = (policy: typeof after, name: string) =>
        testDestination(policy, { name, address: '203.0.113.7', protocol: 'tls' }).verdict;
      assert.equal(verdict(after, domain), 'allow');
      for (const name of names)
        if (verdict(before, name) === 'allow') assert.equal(verdict(after, name), 'allow', name);
    }),
  );
});

test('a refusal that the present policy would not repeat is known as such', () => {
  const policy = checkPolicy({ allow: ['api.example.com', '203.0.113.9'], deny: [] });
  assert.equal(isAllowedNow(policy, NAMED), true);
  assert.equal(isAllowedNow(policy, { ...NAMED, domain: 'b.example' }), false);
  assert.equal(isAllowedNow(policy, { ip: '203.0.113.9', reason: 'name_missing' }), true);
  assert.equal(isAllowedNow(policy, { ip: '203.0.113.9', reason: 'too_many_connections' }), false);
  assert.equal(isAllowedNow(policy, { reason: 'not_allowed' }), false);
});
