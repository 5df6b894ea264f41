import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CredentialEndpoint } from '@coppice/contract';
import fc from 'fast-check';
import { compileEndpointRules, judgeEndpoint } from './endpoint-rules.ts';
import { normalizePath } from './normalize-path.ts';

function judge(endpoints: CredentialEndpoint[] | null, method: string, raw: string): string {
  const path = normalizePath(raw);
  assert.ok(path.ok, `refused ${raw}`);
  const verdict = judgeEndpoint(compileEndpointRules(endpoints), method, path.value);
  return verdict.ok ? 'allowed' : verdict.refusal.reason;
}

function allows(rule: string, raw: string): boolean {
  return judge([{ methods: [], paths: [rule] }], 'GET', raw) === 'allowed';
}

const MATCHES: [rule: string, allowed: string[], refused: string[]][] = [
  [
    '/repos/org',
    ['/repos/org', '/repos/org/', '/repos/org/a/b', '/repos//org/a', '/repos/%6frg'],
    ['/repos/orgs', '/repos/org2/a', '/Repos/org', '/repos/ORG', '/repos', '/x/repos/org', '/repos/org%2Fa'],
  ],
  [
    '/repos/org/*',
    ['/repos/org/a', '/repos/org/a/b', '/repos/org/'],
    ['/repos/org', '/repos/orga', '/repos'],
  ],
  ['/repos/org/', ['/repos/org/a', '/repos/org/'], ['/repos/org']],
  ['/', ['/', '/a', '/a/b'], ['/a%2Fb']],
  ['/*', ['/', '/a', '/a/b'], []],
  [
    '/repos/*/issues',
    ['/repos/a/issues'],
    ['/repos/a/issues/1', '/repos/a/b/issues', '/repos/a%2Fb/issues', '/repos/issues'],
  ],
  [
    '/repos/*/issues/*',
    ['/repos/a/issues/1', '/repos/a/issues/1/x'],
    ['/repos/a/issues', '/repos/a/pulls/1'],
  ],
  ['/m/gpt-*', ['/m/gpt-', '/m/gpt-4'], ['/m/gpt', '/m/gpt-4/x']],
  ['/m/*:generate*', ['/m/a:generateContent', '/m/:generate'], ['/m/a:stream', '/m/a/b:generate']],
  ['/m/a*b*a', ['/m/aba', '/m/axbxa'], ['/m/ab', '/m/aa', '/m/a']],
  ['/m/ab*ba', ['/m/abba', '/m/abxba'], ['/m/aba']],
  ['/a%20b', ['/a%20b'], ['/a+b']],
  ['/a%2Ab', ['/a*b', '/a%2ab'], ['/axb']],
];

for (const [rule, allowed, refused] of MATCHES) {
  test(`the rule ${rule}`, () => {
    for (const raw of allowed) assert.ok(allows(rule, raw), `does not allow ${raw}`);
    for (const raw of refused) assert.ok(!allows(rule, raw), `allows ${raw}`);
  });
}

test('empty methods or paths allow any, an empty list of endpoints allows nothing, no rules allow everything', () => {
  assert.equal(judge([], 'GET', '/'), 'endpoint-rule');
  assert.equal(judge(null, 'DELETE', '/a%2Fb'), 'allowed');
  assert.equal(judge([{ methods: [], paths: [] }], 'DELETE', '/x'), 'allowed');
  assert.equal(judge([{ methods: ['GET'], paths: [] }], 'GET', '/x'), 'allowed');
  assert.equal(judge([{ methods: ['GET'], paths: [] }], 'HEAD', '/x'), 'endpoint-rule');
  assert.equal(judge([{ methods: ['POST'], paths: ['/a'] }], 'GET', '/a'), 'endpoint-rule');
});

test('methods and paths of two entries are not combined', () => {
  const endpoints: CredentialEndpoint[] = [
    { methods: ['GET'], paths: ['/a'] },
    { methods: ['POST'], paths: ['/b'] },
  ];
  assert.equal(judge(endpoints, 'POST', '/b'), 'allowed');
  assert.equal(judge(endpoints, 'POST', '/a'), 'endpoint-rule');
});

test('an encoded slash is allowed only by a rule without paths', () => {
  assert.equal(judge([{ methods: [], paths: ['/*'] }], 'GET', '/a%2Fb'), 'encoded-slash');
  assert.equal(judge([{ methods: ['GET'], paths: [] }], 'GET', '/a%2Fb'), 'allowed');
  assert.equal(judge([{ methods: ['POST'], paths: [] }], 'GET', '/a%2Fb'), 'endpoint-rule');
});

/** A model of the rules as regular expressions over the sent path: slower, and written from the documentation alone. */
function matchesByModel(rule: string, sent: string): boolean {
  const source = rule
    .split('*')
    .map((literal) => literal.replaceAll(/[.+?^${}()|[\]\\]/gu, String.raw`\$&`))
    .join('[^/]*');
  if (rule.endsWith('/*')) return new RegExp(`^${source.slice(0, -'[^/]*'.length)}.*$`, 'u').test(sent);
  if (rule.endsWith('/')) return sent.startsWith(rule) || new RegExp(`^${source}.*$`, 'u').test(sent);
  return new RegExp(rule.includes('*') ? `^${source}$` : `^${source}(?:/.*)?$`, 'u').test(sent);
}

const word = fc.string({ unit: fc.constantFrom('a', 'b', '.a'), minLength: 1, maxLength: 3 });
const rulePart = fc
  .array(fc.oneof(word, fc.constant('*')), { minLength: 1, maxLength: 3 })
  .map((pieces) => pieces.join('').replaceAll(/\*+/gu, '*'));
const anyRule = fc
  .tuple(fc.array(rulePart, { minLength: 1, maxLength: 4 }), fc.constantFrom('', '/', '/*'))
  .map(([parts, end]) => `/${parts.join('/')}${end}`)
  .filter((rule) => rule.split('*').length <= 9);
const anyPath = fc
  .tuple(fc.array(word, { minLength: 1, maxLength: 5 }), fc.constantFrom('', '/'))
  .map(([parts, end]) => `/${parts.join('/')}${end}`);

test('rules and the model agree', () => {
  let matched = 0;
  fc.assert(
    fc.property(anyRule, anyPath, (rule, path) => {
      const expected = matchesByModel(rule, path);
      if (expected) matched++;
      assert.equal(allows(rule, path), expected, `${rule} ${path}`);
    }),
    { numRuns: 20_000 },
  );
  assert.ok(matched > 500, `only ${matched} matched`);
});

test('no spelling of a request is sent outside its rule', () => {
  const piece = fc.constantFrom(
    '/',
    '..',
    '.',
    '%2e%2e',
    '%2f',
    '%252e',
    '\\',
    '%5c',
    'safe',
    'evil',
    '%73afe',
    ';',
    '*',
    '%00',
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 10 }), (pieces) => {
      const path = normalizePath(`/safe/${pieces.join('')}`);
      if (!path.ok) return;
      const verdict = judgeEndpoint(
        compileEndpointRules([{ methods: [], paths: ['/safe/*'] }]),
        'GET',
        path.value,
      );
      if (!verdict.ok) return;
      const { pathname } = new URL(path.value.text, 'http://h');
      assert.equal(pathname, path.value.text);
      assert.match(pathname, /^\/safe\//u);
      assert.ok(!/(?:^|[/\\])\.\.?(?:[/\\;]|$)/u.test(decodeURIComponent(decodeURIComponent(pathname))));
    }),
    { numRuns: 20_000 },
  );
});

test('the largest set of rules is judged in milliseconds', () => {
  const paths = Array.from({ length: 64 }, (_, index) => `/${'*a'.repeat(8)}${index}`);
  const rules = compileEndpointRules(Array.from({ length: 8 }, () => ({ methods: [], paths })));
  const path = normalizePath(`/${'a'.repeat(8000)}`);
  assert.ok(path.ok);
  const startedAt = performance.now();
  judgeEndpoint(rules, 'GET', path.value);
  assert.ok(performance.now() - startedAt < 100);
});
