import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { AppError } from '../errors.ts';
import { invalidRequest } from '../invalid-request.ts';
import { buildNetworkPolicy, listRules, type BuiltPolicy } from './build-network-policy.ts';
import { compileNetworkPolicy, findNetworkPath } from './compile-network-policy.ts';
import { MAX_RULES, NetworkRules } from './network-schemas.ts';
import { CLOSED, makeContext } from './testing/policies.ts';
import { someRules } from './testing/policy-model.ts';

const context = makeContext();

function build(rules: Partial<NetworkRules>): BuiltPolicy {
  return buildNetworkPolicy({ allow: [], deny: [], ...rules }, { field: 'network', context });
}

/** Validates the input as an endpoint does, and returns the error message. */
function messageOf(input: unknown): string {
  const parsed = NetworkRules.safeParse(input);
  if (!parsed.success) return invalidRequest(parsed.error, { where: 'body', input }).message;
  try {
    build(parsed.data);
  } catch (error) {
    assert.ok(error instanceof AppError && error.code === 'invalid_request', String(error));
    return error.message;
  }
  return 'no fault';
}

test('the default follows from the rules', () => {
  const defaults: [Partial<NetworkRules>, 'allow' | 'deny', 'kernel' | 'proxy'][] = [
    [{}, 'allow', 'kernel'],
    [{ allow: ['0.0.0.0/0'] }, 'allow', 'kernel'],
    [{ allow: ['*'] }, 'allow', 'kernel'],
    [{ allow: ['0.0.0.0/0', '::/0'] }, 'allow', 'kernel'],
    [{ allow: ['*', 'a.example'] }, 'allow', 'kernel'],
    [{ allow: ['*'], deny: ['a.example'] }, 'allow', 'proxy'],
    [{ deny: ['a.example'] }, 'allow', 'proxy'],
    [{ allow: ['a.example'] }, 'deny', 'proxy'],
    [{ allow: ['::/0'] }, 'deny', 'proxy'],
    [{ allow: ['a.example'], deny: ['b.example'] }, 'deny', 'proxy'],
    [{ allow: ['a.example'], deny: ['0.0.0.0/0'] }, 'deny', 'proxy'],
    [{ deny: ['0.0.0.0/0'] }, 'deny', 'proxy'],
    [{ deny: ['::/0'] }, 'deny', 'proxy'],
    [{ deny: ['*'] }, 'deny', 'proxy'],
  ];
  for (const [rules, expected, path] of defaults) {
    const { policy } = build(rules);
    assert.equal(policy.default, expected, JSON.stringify(rules));
    assert.equal(findNetworkPath(policy), path, JSON.stringify(rules));
  }
});

test('the stored form holds each rule once, in one spelling, and nothing that must be looked up', () => {
  const { policy } = build({
    allow: ['A.example.', 'a.example', 'registry:npm', 'registry:npm', '10.1.2.0/24'],
  });
  assert.deepEqual(policy, {
    version: 1,
    profile: null,
    default: 'deny',
    allow: ['a.example', 'npm.example', 'files.npm.example', '10.1.2.0/24'],
    deny: [],
  });
});

test('the rules listed from a policy build the same policy again', () => {
  fc.assert(
    fc.property(someRules, (rules) => {
      const { policy } = build(rules);
      const stored: unknown = JSON.parse(JSON.stringify(policy));
      assert.deepEqual(build(listRules(policy)).policy, policy);
      assert.equal(compileNetworkPolicy(stored, CLOSED).default, policy.default);
    }),
  );
});

test('a fault names the rule and what to write instead', () => {
  const faults: [unknown, string | RegExp][] = [
    [
      { allow: ['a.example', 'b.example:443'] },
      /^network\.allow\[1\]: "b\.example:443" has a port.*write b\.example$/u,
    ],
    [{ deny: ['', 'a'] }, /^deny\[0\]: must not be empty$/u],
    [{ deny: [7] }, /^deny\[0\]: must be a string$/u],
    [{ deny: 'a.example' }, /^deny: must be an array of rules/u],
    [{ allow: null }, /^allow: must be an array/u],
    [{ alow: [] }, /^alow: unknown field/u],
    [
      { allow: ['a.example'], deny: ['x', 'A.example.'] },
      /^network\.allow\[0\]: "a\.example" contradicts network\.deny\[1\]; remove/u,
    ],
    [{ allow: ['*'], deny: ['0.0.0.0/0'] }, /^network\.allow\[0\]: "\*" contradicts network\.deny\[0\]/u],
    [{ allow: ['registry:npm'], deny: ['registry:npm'] }, /contradicts/u],
    [{ allow: ['192.168.1.7'] }, /^network\.allow\[0\]: "192\.168\.1\.7" is private; the operator opens/u],
    [{ allow: ['10.0.0.0/8'] }, /is private/u],
    [{ allow: ['fd00::/8'] }, /is private/u],
    [{ allow: ['127.0.0.1'] }, /is never reached/u],
    [{ allow: ['169.254.169.254'] }, /is never reached/u],
    [{ allow: ['fe80::/10'] }, /is never reached/u],
    [
      { allow: ['registry:crates'] },
      /^network\.allow\[0\]: "registry:crates" is not known.*registry:npm, registry:pypi$/u,
    ],
    [{ deny: ['registry:else'] }, /is not known to this server/u],
    [{ allow: ['user:secret@a.example'] }, /^network\.allow\[0\]: has an @/u],
    [{ allow: ['10.1.0.0/16', '203.0.113.0/24'], deny: ['10.0.0.0/8'] }, 'no fault'],
    [{ allow: ['192.0.0.0/2'] }, 'no fault'],
    [{ deny: ['127.0.0.1', '192.168.0.0/16', '::1'] }, 'no fault'],
  ];
  for (const [input, expected] of faults) {
    const message = messageOf(input);
    if (typeof expected === 'string') assert.equal(message, expected);
    else assert.match(message, expected);
    assert.doesNotMatch(message, /secret/u);
  }
});

test('of many faults the first are reported, each cut to a length', () => {
  const message = messageOf({ allow: Array.from({ length: 1000 }, () => `${'x'.repeat(400)} y`) });
  assert.equal(message.split('; one rule is').length - 1, 3);
  assert.ok(message.length < 600);
});

test('the number of rules and their length are limited, registries included', () => {
  const many = Array.from({ length: MAX_RULES }, (_, index) => `h${index}.example`);
  assert.equal(messageOf({ allow: many }), 'no fault');
  assert.match(
    messageOf({ allow: many, deny: ['x.example'] }),
    /^network: must have at most 10000 rules, it has 10001$/u,
  );
  assert.match(messageOf({ allow: [...many, 'x.example'] }), /^allow: must have at most 10000 rules$/u);
  assert.match(
    messageOf({ allow: [...many.slice(1), 'registry:npm'] }),
    /at most 10000 rules, including those of registries$/u,
  );
  const long = many
    .slice(0, 4000)
    .map((name) => `${'a'.repeat(60)}.${'b'.repeat(60)}.${'c'.repeat(60)}.${name}`);
  assert.match(messageOf({ allow: long }), /^network: must have at most 524288 characters/u);
});

test('useless rules are reported as warnings, up to a maximum', () => {
  const { warnings } = build({
    allow: ['a.evil.example', '*.b.evil.example', 'a.example', 'A.example', '203.0.113.7', 'good.example'],
    deny: ['*.evil.example', '203.0.113.0/24'],
  });
  assert.deepEqual(warnings, [
    'network.allow[3]: "a.example" repeats network.allow[2]',
    'network.allow[0]: "a.evil.example" never applies, because *.evil.example is denied',
    'network.allow[1]: "*.b.evil.example" never applies, because *.evil.example is denied',
    'network.allow[4]: "203.0.113.7" never applies, because 203.0.113.0/24 is denied',
  ]);
  const same = build({ allow: Array.from({ length: 100 }, () => 'a.example') });
  assert.equal(same.warnings.at(-1), 'and 79 more');
  assert.equal(same.warnings.length, 21);
});

test('rules for IPv6 are reported as warnings, except its catch-all in deny', () => {
  const { warnings } = build({ allow: ['2001:db8:0::/48', 'a.example', '::/0'], deny: ['2a00::7'] });
  assert.deepEqual(warnings, [
    'network.allow[0]: "2001:db8::/48" matches nothing, because sandboxes have no IPv6',
    'network.allow[2]: "::/0" matches nothing, because sandboxes have no IPv6',
    'network.deny[0]: "2a00::7" matches nothing, because sandboxes have no IPv6',
  ]);
  assert.deepEqual(build({ allow: ['a.example'], deny: ['0.0.0.0/0', '::/0'] }).warnings, []);
});

test('a registry rule allows a host in a private network, with a warning because sandboxes cannot reach it', () => {
  const mirrored = makeContext({ registries: { npm: ['10.9.0.5'] } });
  const rules = { allow: ['registry:npm'], deny: [] };
  const { policy, warnings } = buildNetworkPolicy(rules, { field: 'network', context: mirrored });
  assert.deepEqual(policy.allow, ['10.9.0.5']);
  assert.match(warnings.join('\n'), /^network\.allow\[0\]: "10\.9\.0\.5" is private/u);
});

test('a stored policy that buildNetworkPolicy could not have built is refused as a whole', () => {
  const good = build({ allow: ['a.example'] }).policy;
  const changes: object[] = [
    { version: 2 },
    { default: undefined },
    { default: 'maybe' },
    { allow: undefined },
    { allow: ['A.example'] },
    { allow: ['a.example/x'] },
    { allow: ['*'] },
    { allow: ['0.0.0.0/0'] },
    { allow: ['registry:npm'] },
    { deny: [7] },
    { more: true },
  ];
  assert.ok(compileNetworkPolicy(good, CLOSED));
  for (const change of changes)
    assert.throws(
      () => compileNetworkPolicy({ ...good, ...change }, CLOSED),
      /^AppError: stored network policy/u,
      JSON.stringify(change),
    );
  for (const none of [undefined, null, '', [], {}])
    assert.throws(() => compileNetworkPolicy(none, CLOSED), AppError);
});
