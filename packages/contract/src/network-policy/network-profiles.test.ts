import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '../errors.ts';
import { BUILTIN_PROFILES } from './builtin-profiles.ts';
import { findNetworkPath } from './compile-network-policy.ts';
import { buildProfileCatalogue, choosePolicy, findRequestedPolicy } from './network-profiles.ts';
import { NetworkProfileName, NetworkProfileRecord, NetworkProfilesFile } from './network-schemas.ts';
import { buildRuleContext } from './rule-context.ts';
import { makeContext } from './testing/policies.ts';

const context = makeContext();
const catalogue = buildProfileCatalogue({ profiles: [] }, context);
const services = { catalogue, context };

function withFile(profiles: unknown[]): ReturnType<typeof buildProfileCatalogue> {
  return buildProfileCatalogue(NetworkProfilesFile.parse({ profiles }), context);
}

test('every server has the five profiles and shows them as they are enforced', () => {
  assert.deepEqual(
    [...catalogue.keys()],
    ['unrestricted', 'locked-down', 'claude-code', 'openai', 'packages'],
  );
  for (const { record, policy, warnings } of catalogue.values()) {
    assert.deepEqual(NetworkProfileRecord.parse(record), record);
    assert.equal(policy.profile, record.name);
    assert.deepEqual(warnings, []);
  }
  const shown = catalogue.get('packages')?.record;
  assert.deepEqual(shown?.allow, ['pypi.example', 'npm.example', 'files.npm.example']);
  assert.deepEqual(catalogue.get('unrestricted')?.record.allow, ['0.0.0.0/0']);
  assert.deepEqual(catalogue.get('locked-down')?.record.deny, ['0.0.0.0/0']);
});

test('only the unrestricted profile takes the kernel’s path, and the others refuse the rest', () => {
  for (const [name, { policy }] of catalogue) {
    assert.equal(findNetworkPath(policy), name === 'unrestricted' ? 'kernel' : 'proxy', name);
    assert.equal(policy.default, name === 'unrestricted' ? 'allow' : 'deny', name);
  }
});

test('a profile with only unknown registries allows nothing rather than everything', () => {
  const none = buildProfileCatalogue({ profiles: [] }, makeContext({ registries: {} }));
  const { policy, record } = none.get('packages') ?? assert.fail();
  assert.deepEqual([policy.default, policy.allow], ['deny', []]);
  assert.deepEqual([record.allow, record.deny], [[], ['0.0.0.0/0']]);
});

test('a profile that lacks hosts of a registry says so and names the remedy', () => {
  const registries = { npm: ['npm.example'], pypi: ['pypi.example'], crates: ['index.example'] };
  const describe = (settings: Parameters<typeof makeContext>[0]): string | undefined =>
    buildProfileCatalogue({ profiles: [] }, makeContext(settings)).get('packages')?.record.description;
  const whole = describe({ registries });
  assert.equal(whole, 'The registries of PyPI, npm and crates, nothing else.');
  const remedy = 'The operator can find them with "npm run setup".';
  assert.equal(
    describe({ registries, incompleteRegistries: ['crates'] }),
    `${whole} This server does not know all hosts of: crates. ${remedy}`,
  );
  assert.equal(
    describe({ registries: { ...registries, npm: [] }, incompleteRegistries: ['npm', 'pypi'] }),
    `${whole} This server knows no hosts of: npm. This server does not know all hosts of: pypi. ${remedy}`,
  );
});

test('no built-in profile names the host of a package registry', () => {
  const known = new Set(['github.com', 'api.github.com', 'codeload.github.com', '*.githubusercontent.com']);
  const vendors = new Set(['api.anthropic.com', 'api.openai.com', '0.0.0.0/0']);
  for (const rule of BUILTIN_PROFILES.flatMap(({ allow }) => allow))
    assert.ok(known.has(rule) || vendors.has(rule) || rule.startsWith('registry:'), rule);
});

test('an operator can add profiles and replace built-in ones, except the fixed ones', () => {
  const own = withFile([
    { name: 'office', description: 'Our API.', allow: ['api.office.example', '10.1.2.3'] },
    { name: 'packages', allow: ['mirror.office.example'] },
  ]);
  assert.deepEqual(own.get('office')?.record, {
    name: 'office',
    description: 'Our API.',
    allow: ['api.office.example', '10.1.2.3'],
    deny: [],
  });
  assert.deepEqual(own.get('packages')?.policy.allow, ['mirror.office.example']);
  assert.throws(
    () => withFile([{ name: 'locked-down' }]),
    /profiles\[0\]\.name: "locked-down" is reserved by the service/u,
  );
  assert.throws(() => withFile([{ name: 'a' }, { name: 'a' }]), /profiles\[1\]\.name: "a" occurs twice/u);
  assert.throws(
    () => withFile([{ name: 'a', allow: ['10.9.0.1'] }]),
    /profiles\[0\]\.allow\[0\]: "10\.9\.0\.1" is private/u,
  );
  assert.throws(
    () => withFile([{ name: 'a', allow: ['registry:crates'] }]),
    /profiles\[0\]\.allow\[0\].* not known/u,
  );
  assert.throws(() => withFile([{ name: 'A b' }]), /begin with a letter/u);
  assert.throws(() => withFile([{ name: 'a', alow: [] }]), /alow/u);
});

test('a request names a profile or gives rules, not both', () => {
  const network = { allow: ['a.example'], deny: [] };
  assert.equal(choosePolicy({ network_profile: 'openai' }, services).policy.profile, 'openai');
  assert.deepEqual(choosePolicy({ network }, services).policy.allow, ['a.example']);
  assert.equal(findNetworkPath(choosePolicy({}, services).policy), 'kernel');
  assert.equal(findRequestedPolicy({}, services), undefined);
  assert.throws(
    () => choosePolicy({ network, network_profile: 'openai' }, services),
    (error) => error instanceof AppError && error.code === 'conflicting_options',
  );
  for (const name of ['nope', '__proto__', 'toString'])
    assert.throws(
      () => choosePolicy({ network_profile: name }, services),
      /^AppError: network_profile: there is no "/u,
    );
});

test('profile names are short and plain', () => {
  for (const name of ['a', 'claude-code', `a${'b'.repeat(62)}`])
    assert.ok(NetworkProfileName.safeParse(name).success);
  for (const name of ['', '-a', '1a', 'A', 'a_b', 'a\n', `a${'b'.repeat(63)}`])
    assert.ok(!NetworkProfileName.safeParse(name).success, name);
});

test('the registries that set-up found are validated', () => {
  const read = (registries: Record<string, string[]>): unknown =>
    buildRuleContext({ openPrivateRanges: [], registries });
  for (const host of ['*', '0.0.0.0/0', 'registry:npm', 'https://npm.example/', 'npm.example:443'])
    assert.throws(() => read({ npm: [host] }), /^AppError: package registries: npm: "/u, host);
  assert.throws(() => read({ 'N P': [] }), /not a registry name/u);
  assert.throws(
    () => read({ npm: Array.from({ length: 65 }, (_, index) => `h${index}.example`) }),
    /more than 64 hosts/u,
  );
  assert.ok(read({ npm: ['*.npm.example', '203.0.113.7'], pypi: [] }));
});
